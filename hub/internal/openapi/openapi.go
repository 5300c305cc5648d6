// Package openapi describes the REST API of the hub as an OpenAPI 3.1 document.
//
// What there is comes from the routes of package leaseapi, and what it means from the comments in proto/. Nothing is
// written twice: hack/generate makes the document anew, package leaseapi embeds it, and a test there holds it to the
// routes. The package knows the shape of the API (JSON as protojson writes it, flat errors, events) and none of its calls.
package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Route is one method and path.
type Route struct {
	Method, Path string
	// Call is the method of a service that it stands for.
	Call protoreflect.MethodDescriptor
	// Body says that the request is the body; otherwise it is the query.
	// A body may repeat the field that the path names.
	Body bool
	// Events says that the answer is a stream of server-sent events.
	Events bool
}

// Options are what a document is made from.
type Options struct {
	Title, Version, Description string
	Routes                      []Route
	// PathField is the field that {id} in a path stands for.
	PathField protoreflect.Name
	// Flatten names the messages whose fields are query parameters of their own.
	Flatten []protoreflect.FullName
	// Error is the message whose fields stand in errors beside code and message.
	Error protoreflect.MessageDescriptor
}

// object keeps JSON objects readable; encoding/json sorts their keys.
type object = map[string]any

// Build returns the document as indented JSON. The descriptors must have their comments, or it has none.
func Build(o Options) ([]byte, error) {
	if len(o.Routes) == 0 || o.Error == nil {
		return nil, errors.New("openapi: Options need Routes and Error")
	}
	b := &builder{options: o, schemas: object{}}
	paths := object{}
	for _, route := range o.Routes {
		if route.Call == nil {
			return nil, fmt.Errorf("openapi: %s %s stands for no call", route.Method, route.Path)
		}
		item, ok := paths[route.Path].(object)
		if !ok {
			item = object{}
			paths[route.Path] = item
		}
		item[strings.ToLower(route.Method)] = b.operation(route)
	}
	b.schemas["Error"] = b.errorSchema()
	document := object{
		"openapi":  "3.1.0",
		"info":     object{"title": o.Title, "version": o.Version, "description": o.Description},
		"paths":    paths,
		"security": []object{{"bearer": []string{}}},
		"components": object{
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
			"schemas":         b.schemas,
		},
	}
	text, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		return nil, fmt.Errorf("openapi: write the document: %w", err)
	}
	return append(text, '\n'), nil
}

type builder struct {
	options Options
	schemas object
}

func (b *builder) operation(route Route) object {
	call := route.Call
	operation := object{"operationId": string(call.Name()), "summary": comment(call)}
	var parameters []object
	inPath := strings.Contains(route.Path, "{id}")
	if inPath {
		parameters = append(parameters, object{
			"name": "id", "in": "path", "required": true, "schema": object{"type": "string"},
			"description": "The leaseId that Acquire returned.",
		})
	}
	if route.Body {
		operation["requestBody"] = object{
			"required": !inPath,
			"content":  object{"application/json": object{"schema": b.message(call.Input())}},
		}
	} else {
		parameters = append(parameters, b.parameters(call.Input(), inPath)...)
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	answer := object{"description": "Done.", "content": object{"application/json": object{"schema": b.message(call.Output())}}}
	if route.Events {
		answer = object{
			"description": "Server-sent events: the event is the kind in lower case, its data the message. Heartbeats are comments. " +
				"An event named error ends the stream; its data is an Error.",
			"content": object{"text/event-stream": object{"schema": b.message(call.Output())}},
		}
	}
	operation["responses"] = object{
		"200": answer,
		"default": object{
			"description": "Refused. Retry-After is set where waiting helps.",
			"headers":     object{"Retry-After": object{"schema": object{"type": "integer"}, "description": "Seconds."}},
			"content":     object{"application/json": object{"schema": reference("Error")}},
		},
	}
	return operation
}

func (b *builder) parameters(desc protoreflect.MessageDescriptor, inPath bool) []object {
	var parameters []object
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		switch {
		case inPath && field.Name() == b.options.PathField:
		case field.Message() != nil && slices.Contains(b.options.Flatten, field.Message().FullName()):
			parameters = append(parameters, b.parameters(field.Message(), false)...)
		case field.IsMap():
			parameters = append(parameters, object{
				"name": strings.TrimSuffix(field.JSONName(), "s"), "in": "query", "description": comment(field) + " Written KEY=VALUE, any number of times.",
				"schema": object{"type": "array", "items": object{"type": "string"}}, "explode": true, "style": "form",
			})
		default:
			parameters = append(parameters, object{
				"name": field.JSONName(), "in": "query", "description": comment(field), "schema": b.value(field),
			})
		}
	}
	return parameters
}

// message returns a reference to a message's schema, and makes it on first use.
func (b *builder) message(desc protoreflect.MessageDescriptor) object {
	switch desc.FullName() {
	case "google.protobuf.Duration":
		return object{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]{1,9})?s$`, "examples": []string{"600s"}}
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	}
	name := string(desc.Name())
	if parent, ok := desc.Parent().(protoreflect.MessageDescriptor); ok {
		name = string(parent.Name()) + name
	}
	if _, known := b.schemas[name]; !known {
		b.schemas[name] = object{} // for messages that hold themselves
		b.schemas[name] = b.fields(desc)
	}
	return reference(name)
}

func (b *builder) fields(desc protoreflect.MessageDescriptor) object {
	properties := object{}
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		schema := b.field(field)
		if text := comment(field); text != "" {
			if _, isReference := schema["$ref"]; isReference {
				schema = object{"allOf": []object{schema}}
			}
			schema["description"] = text
		}
		properties[field.JSONName()] = schema
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if text := comment(desc); text != "" {
		schema["description"] = text
	}
	return schema
}

func (b *builder) field(field protoreflect.FieldDescriptor) object {
	switch {
	case field.IsMap():
		return object{"type": "object", "additionalProperties": b.value(field.MapValue())}
	case field.IsList():
		return object{"type": "array", "items": b.value(field)}
	default:
		return b.value(field)
	}
}

func (b *builder) value(field protoreflect.FieldDescriptor) object {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "pattern": "^-?[0-9]+$"} // as JSON of protobuf has it
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{"type": "number"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.EnumKind:
		return enum(field.Enum())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return b.message(field.Message())
	default:
		return object{"type": "string"}
	}
}

func enum(desc protoreflect.EnumDescriptor) object {
	var names, meanings []string
	for i := range desc.Values().Len() {
		value := desc.Values().Get(i)
		names = append(names, string(value.Name()))
		if text := comment(value); text != "" {
			meanings = append(meanings, string(value.Name())+": "+text)
		}
	}
	schema := object{"type": "string", "enum": names}
	if len(meanings) > 0 {
		schema["description"] = strings.Join(meanings, "\n")
	}
	return schema
}

// errorSchema is code and message with the fields of the error message beside them.
func (b *builder) errorSchema() object {
	schema := b.fields(b.options.Error)
	properties, _ := schema["properties"].(object)
	properties["code"] = object{"type": "string", "description": "As in Connect, such as resource_exhausted."}
	properties["message"] = object{"type": "string", "description": "For people: it says what to do. Programs branch on reason."}
	schema["required"] = []string{"code", "message"}
	return schema
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// comment is what stands above something in its file, as one line.
func comment(desc protoreflect.Descriptor) string {
	text := desc.ParentFile().SourceLocations().ByDescriptor(desc).LeadingComments
	return strings.Join(strings.Fields(text), " ")
}
