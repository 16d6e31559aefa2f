"""Keep the project up to date: new versions, the newest Spack, releases, what goes upstream."""
