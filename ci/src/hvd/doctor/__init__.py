"""What a support engineer asks first: ``./hvd doctor``."""
