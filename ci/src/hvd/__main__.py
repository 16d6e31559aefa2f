"""``python -m hvd``: what ``./hvd`` runs in its own virtual environment."""

from hvd.cli.main import main

if __name__ == "__main__":
    main()
