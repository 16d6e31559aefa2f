"""Rehearse a site's environment on this machine, with stand-ins for what the site has."""
