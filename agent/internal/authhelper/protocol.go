package authhelper

import (
	"bytes"
	"strconv"
)

// request is one question: "channel user password", the latter two with %-escapes.
type request struct {
	channel []byte // the digits, as they came; empty if Squid was configured without concurrency
	user    string
	pass    string
}

// parseRequest splits a line without its line break. Fields after the password (Squid's key_extras) are ignored. When
// ok is false, channel is still set if the line has one, so that Squid gets an answer.
func parseRequest(line []byte) (r request, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) > 0 && isNumber(fields[0]) {
		r.channel, fields = fields[0], fields[1:]
	}
	if r.channel == nil || len(fields) < 2 {
		return r, false
	}
	var okUser, okPass bool
	r.user, okUser = unescape(fields[0])
	r.pass, okPass = unescape(fields[1])
	return r, okUser && okPass
}

func isNumber(b []byte) bool {
	_, err := strconv.ParseUint(string(b), 10, 32)
	return err == nil
}

// unescape undoes %-escapes. It refuses broken ones instead of guessing.
func unescape(b []byte) (string, bool) {
	if bytes.IndexByte(b, '%') < 0 {
		return string(b), true
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '%' {
			out = append(out, b[i])
			continue
		}
		if i+2 >= len(b) {
			return "", false
		}
		v, err := strconv.ParseUint(string(b[i+1:i+3]), 16, 8)
		if err != nil {
			return "", false
		}
		out = append(out, byte(v))
		i += 2
	}
	return string(out), true
}

// appendEscaped adds s with everything %-escaped that has a meaning in Squid's answer lines.
func appendEscaped(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if isPlain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == '@'
}

// isLabel reports whether s can be a lease id, which is all that a user name may be.
func isLabel(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
