package authhelper

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/proto/credential"
)

// NoteKey is the name under which Squid gets the principal of an accepted request, to be logged with
// "%{principal_}note". Squid 6 keeps names without the underscore for itself and warns at each use.
const NoteKey = "principal_"

// maxLine is the longest question read; Squid's own buffer for one is smaller.
const maxLine = 16 << 10

// Options configures Run.
type Options struct {
	// ProxyUID is the proxy that this helper guards. Exactly one of ProxyUID and ProxyUIDFile is set.
	ProxyUID credential.ProxyUID
	// ProxyUIDFile is a file with the UID, such as a downward API volume's; spaces around it are dropped.
	ProxyUIDFile string
	// KeysDir is the directory of key files.
	KeysDir string
	// Clock says when tokens expire.
	Clock clock.PassiveClock
	// In and Out are the pipes from and to Squid.
	In  io.Reader
	Out io.Writer
	// Log takes lines for the operator; Squid passes them on to its own log.
	Log io.Writer
}

// Run answers questions until In ends, which is how Squid stops its helpers, and returns nil then. An error means that
// it could not begin, or that a pipe broke.
func Run(o Options) error {
	uid, err := o.proxyUID()
	if err != nil {
		return err
	}
	if o.KeysDir == "" {
		return errors.New("no key directory; give it with --keys")
	}
	keys, err := OpenKeyDir(o.KeysDir, o.Log, o.Clock.Now())
	if err != nil {
		return err
	}
	h := &helper{proxy: uid, keys: keys, clock: o.Clock}
	return h.serve(o.In, o.Out)
}

func (o Options) proxyUID() (credential.ProxyUID, error) {
	switch {
	case (o.ProxyUID == "") == (o.ProxyUIDFile == ""):
		return "", errors.New("give the proxy's UID with either --proxy-uid or --proxy-uid-file")
	case o.ProxyUID != "":
		return o.ProxyUID, nil
	}
	data, err := os.ReadFile(o.ProxyUIDFile)
	if err != nil {
		return "", fmt.Errorf("proxy UID: %w", err)
	}
	uid := credential.ProxyUID(strings.TrimSpace(string(data)))
	if uid == "" {
		return "", fmt.Errorf("proxy UID: %s is empty", o.ProxyUIDFile)
	}
	return uid, nil
}

type helper struct {
	proxy credential.ProxyUID
	keys  *KeyDir
	clock clock.PassiveClock
}

func (h *helper) serve(in io.Reader, out io.Writer) error {
	r, w := bufio.NewReaderSize(in, maxLine), bufio.NewWriter(out)
	var answer []byte
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			answer = h.answer(answer[:0], line)
		case errors.Is(err, bufio.ErrBufferFull):
			// Answer by its channel, if it has one, then drop the rest of the line.
			request, _ := parseRequest(line)
			answer = appendFault(answer[:0], request.channel, "the question is too long")
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
		}
		if errors.Is(err, io.EOF) {
			return w.Flush() // Squid is gone or stopping; half a question needs no answer.
		}
		if err != nil {
			return fmt.Errorf("reading from squid: %w", err)
		}
		if _, err := w.Write(answer); err != nil {
			return fmt.Errorf("answering squid: %w", err)
		}
		// Answers go out together while whole questions are waiting, and at once when the next read may block.
		waiting, _ := r.Peek(r.Buffered())
		if bytes.IndexByte(waiting, '\n') < 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("answering squid: %w", err)
			}
		}
	}
}

// answer appends the answer to one question.
func (h *helper) answer(b, line []byte) []byte {
	request, ok := parseRequest(line)
	switch {
	case request.channel == nil:
		return appendFault(b, nil, "no channel number; set concurrency= in auth_param")
	case !ok:
		return appendRefusal(b, request.channel, "malformed credentials")
	case !isLabel(request.user):
		return appendRefusal(b, request.channel, "the user name is not a lease id")
	}
	now := h.clock.Now()
	keys, deny := h.keys.Current(now)
	claims, err := credential.Verify(keys, deny, h.proxy, request.pass, now)
	if err != nil {
		return appendRefusal(b, request.channel, reason(err))
	}
	b = append(b, request.channel...)
	b = append(b, " OK "+NoteKey+"="...)
	b = appendEscaped(b, string(claims.Principal))
	return append(b, '\n')
}

// reason is what a client may learn: the kind of refusal, not the token's content.
func reason(err error) string {
	for _, kind := range []error{
		credential.ErrMalformed, credential.ErrUnknownKey, credential.ErrBadSignature, credential.ErrWrongUse,
		credential.ErrWrongProxy, credential.ErrNotYetValid, credential.ErrExpired, credential.ErrDenied,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "refused"
}

// appendRefusal appends the answer that makes Squid ask the client again. The text is one of our own, without quotes.
func appendRefusal(b, channel []byte, text string) []byte {
	b = append(b, channel...)
	b = append(b, ` ERR message="`...)
	b = append(b, text...)
	return append(b, "\"\n"...)
}

// appendFault appends the answer for a question that could not be judged.
func appendFault(b, channel []byte, text string) []byte {
	if channel != nil {
		b = append(append(b, channel...), ' ')
	}
	b = append(b, `BH message="`...)
	b = append(b, text...)
	return append(b, "\"\n"...)
}
