"""Pipelines of GitLab: jobs that Spack generates, and what each of them does."""
