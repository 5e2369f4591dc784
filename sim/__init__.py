"""specsim: does speculative decoding pay, up to which batch size, and with which K?"""

__version__ = "0.1.0"
