package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// document is a file while it is read: where its fields are written, and what is wrong with them.
type document struct {
	// lines holds the line of each field that is written, by its path, such as providers[1].name.
	lines map[string]int
	found []mistake
}

type mistake struct {
	line int
	text string
}

// read reads a file into a value, and keeps what is wrong with it. written is false where the file says nothing. An error
// means that it is not YAML; there is nothing to check then.
func read(file []byte, into any) (d *document, written bool, err error) {
	d = &document{lines: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(file))
	root := &yaml.Node{}
	switch err := decoder.Decode(root); {
	case errors.Is(err, io.EOF):
		return d, false, nil
	case err != nil:
		return nil, false, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, false, errors.New("it has more than one document; write one")
	}
	top := root.Content[0]
	if top.Tag == "!!null" {
		return d, false, nil
	}
	d.decode(top, reflect.ValueOf(into).Elem(), "")
	return d, true, nil
}

// refuse takes note of a mistake. The line is that of the field, or of the nearest thing around it that is written.
func (d *document) refuse(field, format string, args ...any) {
	d.refuseAt(d.lineOf(field), field, format, args...)
}

func (d *document) refuseAt(line int, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	d.found = append(d.found, mistake{line: line, text: text})
}

func (d *document) lineOf(field string) int {
	for ; field != ""; field = field[:max(strings.LastIndexAny(field, ".["), 0)] {
		if line, ok := d.lines[field]; ok {
			return line
		}
	}
	return max(d.lines[""], 1)
}

// under gives a function that refuses fields of a block; "" is the document itself.
func (d *document) under(block string) func(field, format string, args ...any) {
	return func(field, format string, args ...any) { d.refuse(join(block, field), format, args...) }
}

func join(block, field string) string {
	if block == "" {
		return field
	}
	return block + "." + field
}

// err is all that was found, in the order of the file; nil if there was nothing.
func (d *document) err() error {
	slices.SortStableFunc(d.found, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(d.found))
	for i, m := range d.found {
		errs[i] = fmt.Errorf("line %d: %s", m.line, m.text)
	}
	return errors.Join(errs...)
}

// decode reads a node into a value. What it cannot read stays as it was.
func (d *document) decode(n *yaml.Node, v reflect.Value, path string) {
	if _, keyed := d.lines[path]; !keyed {
		d.lines[path] = n.Line
	}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.refuse(path, "anchors and aliases are not taken; write it out")
	case n.Tag == "!!null":
		// Written and empty is as good as not written.
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case v.Kind() == reflect.Struct:
		d.decodeStruct(n, v, path)
	case v.Kind() == reflect.Map:
		d.decodeMap(n, v, path)
	case v.Kind() == reflect.Slice:
		d.decodeSlice(n, v, path)
	default:
		d.decodeScalar(n, v, path)
	}
}

func (d *document) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	fields := map[string]reflect.Value{}
	var names []string
	collect(v, fields, &names)
	d.eachKey(n, path, func(key, value *yaml.Node, at string) {
		field, ok := fields[key.Value]
		if !ok {
			d.refuseAt(key.Line, at, "there is no such key here; write one of %s", strings.Join(names, ", "))
			return
		}
		d.decode(value, field, at)
	})
}

// collect finds the fields of a struct by the names that the file has for them.
func collect(v reflect.Value, fields map[string]reflect.Value, names *[]string) {
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			collect(v.Field(i), fields, names)
		case name != "":
			fields[name] = v.Field(i)
			*names = append(*names, name)
		}
	}
}

func (d *document) decodeMap(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.eachKey(n, path, func(key, value *yaml.Node, at string) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, item, at)
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), item)
	})
}

// eachKey calls do for each key of a mapping that is written for the first time.
func (d *document) eachKey(n *yaml.Node, path string, do func(key, value *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		d.refuse(path, "it must be a block of keys and values")
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		switch before, again := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.refuseAt(key.Line, path, "a key must be a word")
		case again:
			d.refuseAt(key.Line, at, "it is written twice, first in line %d; keep one", before)
		default:
			lines[key.Value], d.lines[at] = key.Line, key.Line
			do(key, value, at)
		}
	}
}

func (d *document) decodeSlice(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.refuse(path, "it must be a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (d *document) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
	want := "text"
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		want = "duration such as 10m"
	case v.CanInt():
		want = "whole number"
	case v.Kind() == reflect.Bool:
		want = "true or false"
	}
	if n.Kind != yaml.ScalarNode {
		d.refuse(path, "it must be a %s", want)
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.refuse(path, "%q is no %s", n.Value, want)
	}
}
