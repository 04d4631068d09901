"""key_exchange — keeps the key exchange of a TLS session cheap

Owns: taking Diffie-Hellman over finite fields from a context.
Guarantees: what is left takes a stranger's peer a millisecond or two of ours for each handshake. In TLS 1.2 the host
    chooses the field, up to 10,000 bits: a second of our processor for each handshake, and nothing of the host's; in
    TLS 1.3 either side can insist on one of 8192 bits, which takes an eighth of a second. A handshake is one step of
    the event loop. Peers that know nothing else have no elliptic curves either, which has been rare for long.
See: RFC 9325 section 4.2.1 (finite fields in TLS 1.2); RFC 8446 section 9.1 (every TLS 1.3 knows P-256);
    CVE-2002-20001, CVE-2022-40735.
Bugs: the standard library of Python before 3.15 cannot name the groups of TLS 1.3; they are named to OpenSSL itself. A
    Python into which OpenSSL is built without its names keeps all groups.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys
from typing import Any, Final

_SET_GROUPS: Final = 92  # SSL_CTRL_SET_GROUPS_LIST of openssl/ssl.h
_FINITE: Final = ("ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192")
# The first that this OpenSSL knows: its own choice without finite fields (since 3.5), or that of earlier ones; the last
# where a policy of the system has no others.
_GROUPS: Final = (":-".join(("DEFAULT", *_FINITE)), "X25519:P-256:X448:P-521:P-384", "P-256:P-384:P-521")


def without_finite_fields(context: ssl.SSLContext) -> None:
    """Offer and accept elliptic curves only."""
    ciphers: Any = context.get_ciphers()
    kept = [each["name"] for each in ciphers if each["kea"] not in {"kx-dhe", "kx-any"}]
    if kept and any(each["kea"] == "kx-dhe" for each in ciphers):
        context.set_ciphers(":".join(kept))
    any(set_groups(context, groups) for groups in _GROUPS)


def set_groups(context: ssl.SSLContext, groups: str) -> bool:
    """Allow these groups for the key exchange, as SSL_CTX_set1_groups_list(3) has them; whether that could be done."""
    if sys.version_info >= (3, 15):
        try:
            context.set_groups(groups)
        except ssl.SSLError:
            return False
        return True
    try:
        library = ctypes.CDLL(_ssl.__file__)
        control, forget = library.SSL_CTX_ctrl, library.ERR_clear_error
    except (AttributeError, OSError):
        return False
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
    control.restype = ctypes.c_long
    # The first member of the object behind a context, in all versions of CPython so far.
    inner = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    done = bool(control(inner, _SET_GROUPS, 0, groups.encode()) == 1)
    forget()  # what OpenSSL notes of a refusal would be taken for the reason of a later one
    return done
