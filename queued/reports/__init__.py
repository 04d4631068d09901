"""reports — bounces and feedback reports that come in, and what is learnt from them."""
