"""reports — incoming bounces and feedback reports, and the suppressions learnt from them."""
