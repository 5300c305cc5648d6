package leaseapi

import (
	"context"
	"io"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// jsonCodec is Connect's "json" codec made strict: what it does not know is refused, not discarded, with a message
// that says what is allowed. It reads field names in camelCase and snake_case and writes camelCase, with zero values
// spelled out, so that a script can tell "draining":false from a hub that does not know the field.
type jsonCodec struct {
	out *connectproto.JSONCodec
}

var (
	_ connect.Codec       = (*jsonCodec)(nil)
	_ connect.StableCodec = (*jsonCodec)(nil)
)

func newJSONCodec() *jsonCodec {
	out := connectproto.NewJSONCodec()
	out.MarshalOptions.EmitDefaultValues = true
	return &jsonCodec{out: out}
}

// Name implements [connect.Codec].
func (c *jsonCodec) Name() string { return connect.CodecNameJSON }

// IsBinary implements [connect.StableCodec].
func (c *jsonCodec) IsBinary() bool { return false }

// MarshalWrite implements [connect.Codec].
func (c *jsonCodec) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	return c.out.MarshalWrite(ctx, dst, msg)
}

// MarshalWriteStable implements [connect.StableCodec].
func (c *jsonCodec) MarshalWriteStable(ctx context.Context, dst io.Writer, msg any) error {
	return c.out.MarshalWriteStable(ctx, dst, msg)
}

// UnmarshalRead implements [connect.Codec]. What the caller got wrong is a *badJSON.
func (c *jsonCodec) UnmarshalRead(_ context.Context, src io.Reader, msg any) error {
	into, ok := msg.(proto.Message)
	if !ok {
		return connectproto.ErrNotProtoMessage
	}
	body, err := io.ReadAll(src)
	if err != nil {
		return err
	}
	return decodeJSON(body, into)
}

// badJSON is a body that is not a request.
type badJSON struct {
	message string
	fields  []*leasev1.FieldViolation
}

// Error implements error.
func (b *badJSON) Error() string { return b.message }

// decodeJSON reads one strict JSON object into a message. The error, if any, is a *badJSON, and the message is then
// not to be used.
func decodeJSON(body []byte, into proto.Message) error {
	if len(body) == 0 {
		return &badJSON{message: "the body is empty; send a JSON object, {} if there is nothing to say"}
	}
	// protojson is strict enough, but its errors name neither the path of a field nor what would be right. So the
	// slow, talkative way is taken only once something is known to be wrong.
	err := protojson.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	bad := diagnose(body, into.ProtoReflect().Descriptor())
	if bad == nil {
		bad = &badJSON{message: "the body is not JSON that this call takes"}
	}
	return bad
}
