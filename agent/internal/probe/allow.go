package probe

import "net/netip"

// notAllowedError is an address that may not be dialled. To the judge it is one that nobody can reach, so that what
// listens there does not show.
type notAllowedError struct{ cause error }

func (e *notAllowedError) Error() string { return e.cause.Error() }

func (e *notAllowedError) Unwrap() error { return e.cause }

// allow asks about an address that is about to be dialled.
func allow(ask func(netip.Addr) error, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err == nil {
		err = ask(to.Addr().Unmap().WithZone(""))
	}
	if err != nil {
		return &notAllowedError{cause: err}
	}
	return nil
}
