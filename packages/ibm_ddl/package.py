# Copyright hvd contributors.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.bundle import BundlePackage

from spack.package import *


class IbmDdl(BundlePackage):
    """IBM Distributed Deep Learning (DDL), allreduce on GPUs across the nodes of a cluster.

    A proprietary part of IBM's Watson Machine Learning Community Edition (PowerAI).  Spack can
    use an installation as an external, and has nothing to fetch."""

    homepage = (
        "https://www.ibm.com/support/knowledgecenter/SS5SF7_1.6.0/navigation/"
        "pai_getstarted_ddl.html"
    )

    # https://docs.olcf.ornl.gov/software/analytics/ibm-wml-ce.html: of WML CE 1.6
    version("1.4.0")

    # Spack has nothing to build it from, and takes an installation that packages.yaml names
    conflicts("@:", msg="IBM DDL cannot be built; name an installation in packages.yaml")

    def install(self, spec: Spec, prefix: Prefix) -> None:
        raise InstallError(
            "IBM DDL is proprietary and cannot be installed by Spack. Install IBM's conda package "
            "'ddl', and name its environment in packages.yaml:\n"
            "    packages:\n"
            "      ibm-ddl:\n"
            "        buildable: false\n"
            "        externals:\n"
            f"        - spec: ibm-ddl@{spec.version}\n"
            "          prefix: /path/of/the/conda/environment"
        )

    @property
    def headers(self) -> HeaderList:
        return find_headers("ddl", root=self.prefix.include, recursive=False)

    @property
    def libs(self) -> LibraryList:
        return find_libraries(["libddl", "libddl_pack"], root=self.prefix, recursive=True)
