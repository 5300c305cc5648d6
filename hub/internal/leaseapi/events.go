package leaseapi

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/proto/fault"
)

// events writes the messages of a watch as server-sent events: the kind as the event's name, the message as its data. A
// heartbeat is a comment, which keeps the connection alive and wakes no handler.
type events struct {
	w     http.ResponseWriter
	begun bool
}

// reconnect is how long a browser waits before it connects again, in the notation of server-sent events.
const reconnect = "retry: 2000\n\n"

// send writes one event and sends it at once.
func (e *events) send(msg proto.Message, data []byte) error {
	name := eventName(msg)
	var text bytes.Buffer
	if name == "heartbeat" {
		text.WriteString(": heartbeat\n\n")
	} else {
		text.WriteString("event: " + name + "\ndata: ")
		text.Write(data)
		text.WriteString("\n\n")
	}
	return e.write(text.Bytes())
}

// fail says why the watch ends.
func (e *events) fail(err error) {
	refusal, _ := fault.From(err)
	body := errorBody(connect.CodeOf(err), messageOf(err), refusal)
	// A failed write is the peer's loss.
	_ = e.write([]byte("event: error\ndata: " + string(body) + "\n\n"))
}

func (e *events) write(text []byte) error {
	if !e.begun {
		e.begun = true
		header := e.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Accel-Buffering", "no") // nginx would collect events
		e.w.WriteHeader(http.StatusOK)
		text = append([]byte(reconnect), text...)
	}
	if _, err := e.w.Write(text); err != nil {
		return err
	}
	err := http.NewResponseController(e.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// eventName is the kind of an event, as programs write it: synced, exits_changed.
func eventName(msg proto.Message) string {
	m := msg.ProtoReflect()
	field := m.Descriptor().Fields().ByName("kind")
	if field == nil {
		return "message"
	}
	value := field.Enum().Values().ByNumber(m.Get(field).Enum())
	if value == nil {
		return "message"
	}
	return strings.ToLower(string(value.Name()))
}
