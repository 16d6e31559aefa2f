# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.bundle import BundlePackage

from spack.package import *


class IntelMpi(BundlePackage):
    """Intel MPI Library, of the releases before oneAPI, and of wheels.

    Their prefix has bin, include and lib of its own; intel-oneapi-mpi looks for those in
    mpi/<version> below it.  Spack can use an installation as an external, and has nothing to
    fetch."""

    homepage = "https://www.intel.com/content/www/us/en/developer/tools/oneapi/mpi-library.html"

    # https://www.intel.com/content/www/us/en/developer/articles/release-notes/oneapi-mpi-library-release-notes-linux.html
    version("2018.2.199")

    # https://www.mpi-forum.org/implementation-status/
    provides("mpi@:3.1")

    # Spack has nothing to build it from, and takes an installation that packages.yaml names
    conflicts(
        "@:",
        msg="Intel MPI of this layout cannot be built; name an installation in packages.yaml, or "
        "use intel-oneapi-mpi",
    )

    def install(self, spec: Spec, prefix: Prefix) -> None:
        raise InstallError(
            "Intel MPI of this layout cannot be installed by Spack. Use intel-oneapi-mpi, or name "
            "an installation in packages.yaml:\n"
            "    packages:\n"
            "      intel-mpi:\n"
            "        buildable: false\n"
            "        externals:\n"
            f"        - spec: intel-mpi@{spec.version}\n"
            "          prefix: /directory/with/bin/mpicxx"
        )

    def setup_dependent_package(self, module, dependent_spec: Spec) -> None:
        # https://www.intel.com/content/www/us/en/docs/mpi-library/developer-reference-linux/2021-17/compiler-commands.html:
        # these take the compiler that I_MPI_CC and so on name
        for attribute, wrapper in (
            ("mpicc", "mpicc"),
            ("mpicxx", "mpicxx"),
            ("mpifc", "mpifc"),
            ("mpif77", "mpif77"),
        ):
            setattr(self.spec, attribute, join_path(self.prefix.bin, wrapper))

    def setup_dependent_build_environment(
        self, env: EnvironmentModifications, dependent_spec: Spec
    ) -> None:
        env.set("I_MPI_ROOT", self.prefix)
        module = dependent_spec.package.module
        for variable, compiler in (
            ("I_MPI_CC", "spack_cc"),
            ("I_MPI_CXX", "spack_cxx"),
            ("I_MPI_FC", "spack_fc"),
            ("I_MPI_F77", "spack_f77"),
        ):
            if hasattr(module, compiler):
                env.set(variable, getattr(module, compiler))

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.set("I_MPI_ROOT", self.prefix)

    @property
    def headers(self) -> HeaderList:
        return find_headers("mpi", root=self.prefix.include, recursive=False)

    @property
    def libs(self) -> LibraryList:
        return find_libraries("libmpi", root=self.prefix, recursive=True)
