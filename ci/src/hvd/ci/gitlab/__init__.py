"""GitLab's pipelines: jobs that Spack generates, and the commands that they run."""
