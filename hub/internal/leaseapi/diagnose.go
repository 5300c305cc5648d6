package leaseapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// Bounds of what a refusal says.
const (
	maxViolations = 10
	maxQuoted     = 80
)

// diagnosis compares a JSON body with the message that it should have been, and collects what is wrong.
type diagnosis struct {
	fields []*leasev1.FieldViolation
}

// diagnose says what is wrong with a body, or returns nil if it finds nothing.
func diagnose(body []byte, desc protoreflect.MessageDescriptor) *badJSON {
	if !utf8.Valid(body) {
		return &badJSON{message: "the body is not UTF-8; encode it so"}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	var root json.RawMessage
	if err := decoder.Decode(&root); err != nil {
		return &badJSON{message: "the body is not JSON: " + syntax(err)}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &badJSON{message: fmt.Sprintf("the body goes on after its JSON object, at byte %d; send one object and nothing else", decoder.InputOffset()+1)}
	}
	if kind := kindOf(root); kind != "an object" {
		return &badJSON{message: fmt.Sprintf("the body is %s; send a JSON object with %s", kind, fieldNames(desc))}
	}
	var d diagnosis
	d.message("", root, desc)
	if len(d.fields) == 0 {
		return nil
	}
	return invalidFields(d.fields)
}

// invalidFields is the refusal of one or more fields.
func invalidFields(fields []*leasev1.FieldViolation) *badJSON {
	if len(fields) == 1 {
		return &badJSON{message: fields[0].GetMessage(), fields: fields}
	}
	messages := make([]string, len(fields))
	for i, field := range fields {
		messages[i] = field.GetMessage()
	}
	return &badJSON{
		message: fmt.Sprintf("%d fields are wrong: %s", len(fields), strings.Join(messages, "; ")),
		fields:  fields,
	}
}

// syntax says where JSON ends to be JSON. The texts of encoding/json repeat a single character of the body at most.
func syntax(err error) string {
	var at *json.SyntaxError
	switch {
	case errors.As(err, &at):
		return fmt.Sprintf("%s at byte %d", at.Error(), at.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return "it ends in the middle"
	default:
		return "it cannot be read"
	}
}

func (d *diagnosis) add(path, format string, args ...any) {
	if len(d.fields) < maxViolations {
		d.fields = append(d.fields, &leasev1.FieldViolation{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// members calls yield for each member of an object, in order. The text is known to be valid JSON.
func members(object json.RawMessage, yield func(key string, value json.RawMessage)) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil {
		return
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return
		}
		key, _ := token.(string)
		yield(key, value)
	}
}

func (d *diagnosis) message(path string, object json.RawMessage, desc protoreflect.MessageDescriptor) {
	seen := map[protoreflect.FieldNumber]bool{}
	members(object, func(key string, value json.RawMessage) {
		field := desc.Fields().ByJSONName(key)
		if field == nil {
			field = desc.Fields().ByTextName(key)
		}
		if field == nil {
			at := join(path, cut(key))
			where := path
			if where == "" {
				where = "this request"
			}
			d.add(at, "%s is unknown; %s takes %s", at, where, fieldNames(desc))
			return
		}
		at := join(path, field.JSONName())
		if seen[field.Number()] {
			d.add(at, "%s is given twice; write it once", at)
			return
		}
		seen[field.Number()] = true
		d.field(at, value, field)
	})
}

func (d *diagnosis) field(at string, value json.RawMessage, field protoreflect.FieldDescriptor) {
	kind := kindOf(value)
	switch {
	case kind == "null": // the same as leaving it out
	case field.IsMap():
		if kind != "an object" {
			d.add(at, "%s is %s; write an object of strings, such as {\"tier\": \"fast\"}", at, kind)
			return
		}
		seen := map[string]bool{}
		members(value, func(key string, value json.RawMessage) {
			entry := join(at, cut(key))
			if seen[key] {
				d.add(entry, "%s is given twice; write it once", entry)
			}
			seen[key] = true
			if kindOf(value) == "null" {
				d.add(entry, "%s is null; write a string or leave it out", entry)
				return
			}
			d.scalar(entry, value, field.MapValue())
		})
	case field.IsList():
		if kind != "an array" {
			d.add(at, "%s is %s; write an array", at, kind)
			return
		}
		var elements []json.RawMessage
		if err := json.Unmarshal(value, &elements); err != nil {
			return
		}
		for i, element := range elements {
			d.scalar(at+"["+strconv.Itoa(i)+"]", element, field)
		}
	default:
		d.scalar(at, value, field)
	}
}

// scalar checks one value that is neither a map nor a list.
func (d *diagnosis) scalar(at string, value json.RawMessage, field protoreflect.FieldDescriptor) {
	kind := kindOf(value)
	switch field.Kind() {
	case protoreflect.StringKind:
		if kind != "a string" {
			d.add(at, "%s is %s; write a string, in quotes", at, kind)
		}
	case protoreflect.BoolKind:
		if kind != "a boolean" {
			d.add(at, "%s is %s; write true or false, without quotes", at, kind)
		}
	case protoreflect.Int32Kind:
		if !isInt32(value, kind) {
			d.add(at, "%s is %s; write a whole number from %d to %d", at, shown(value, kind), math.MinInt32, math.MaxInt32)
		}
	case protoreflect.Uint64Kind:
		if !isUint64(value, kind) {
			d.add(at, "%s is %s; write a whole number from 0", at, shown(value, kind))
		}
	case protoreflect.EnumKind:
		if !isEnum(value, kind, field.Enum()) {
			d.add(at, "%s is %s; write one of %s", at, shown(value, kind), enumNames(field.Enum()))
		}
	case protoreflect.MessageKind:
		switch {
		case field.Message().FullName() == "google.protobuf.Duration":
			if kind != "a string" || !durationText.MatchString(unquote(value)) {
				d.add(at, "%s is %s; write seconds as a string, such as \"600s\" or \"1.5s\"", at, shown(value, kind))
			}
		case kind != "an object":
			d.add(at, "%s is %s; write an object with %s", at, kind, fieldNames(field.Message()))
		default:
			d.message(at, value, field.Message())
		}
	default: // No request has fields of other kinds. If one gets some, the general message has to do.
	}
}

// durationText is what protojson takes, which is a little more than it writes.
var durationText = regexp.MustCompile(`^[-+]?[0-9]{0,12}(\.[0-9]{0,9})?s$`)

// kindOf names the JSON type of a value, as "… is an array".
func kindOf(value json.RawMessage) string {
	switch value = bytes.TrimLeft(value, " \t\r\n"); {
	case len(value) == 0:
		return "nothing"
	case value[0] == '{':
		return "an object"
	case value[0] == '[':
		return "an array"
	case value[0] == '"':
		return "a string"
	case value[0] == 't' || value[0] == 'f':
		return "a boolean"
	case value[0] == 'n':
		return "null"
	default:
		return "a number"
	}
}

// shown repeats short values and names the type of others.
func shown(value json.RawMessage, kind string) string {
	switch kind {
	case "a string", "a number", "a boolean":
		return cut(string(value))
	default:
		return kind
	}
}

// cut shortens what a caller wrote, so that a message stays a message, and makes it text that can be sent.
func cut(text string) string {
	if len(text) <= maxQuoted {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "…"
}

func unquote(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return ""
	}
	return text
}

// isInt32 tells what protojson reads as an int32: 5, 5.0, 0.5e1, and the same in quotes.
func isInt32(value json.RawMessage, kind string) bool {
	text := string(value)
	switch kind {
	case "a string":
		text = unquote(value)
	case "a number":
	default:
		return false
	}
	number, err := strconv.ParseFloat(text, 64)
	return err == nil && number == math.Trunc(number) && number >= math.MinInt32 && number <= math.MaxInt32
}

// isUint64 tells what protojson reads as an uint64.
func isUint64(value json.RawMessage, kind string) bool {
	text := string(value)
	switch kind {
	case "a string":
		text = unquote(value)
	case "a number":
	default:
		return false
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return true
	}
	number, err := strconv.ParseFloat(text, 64) // 5.0, 0.5e1
	return err == nil && number == math.Trunc(number) && number >= 0 && number < math.MaxUint64
}

func isEnum(value json.RawMessage, kind string, enum protoreflect.EnumDescriptor) bool {
	if kind == "a string" {
		return enum.Values().ByName(protoreflect.Name(unquote(value))) != nil
	}
	return kind == "a number" && isInt32(value, kind)
}

// enumNames lists what can be written for an enum: all names but that of its zero, which means "not given".
func enumNames(enum protoreflect.EnumDescriptor) string {
	var names []string
	for i := range enum.Values().Len() {
		if value := enum.Values().Get(i); value.Number() != 0 {
			names = append(names, string(value.Name()))
		}
	}
	return strings.Join(names, ", ")
}

func fieldNames(desc protoreflect.MessageDescriptor) string {
	names := make([]string, desc.Fields().Len())
	for i := range names {
		names[i] = desc.Fields().Get(i).JSONName()
	}
	if len(names) == 0 {
		return "no fields"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
