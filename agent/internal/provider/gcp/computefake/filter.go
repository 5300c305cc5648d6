package computefake

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// filter is a list filter that was understood. The language is a subset of the API's:
//
//	labels.key=value   labels.key="value"   labels.key!=value   labels.key:*   name=value   status!="RUNNING"
//	(a=b) (c=d)        a=b AND c=d          (a=b) OR (c=d)      ((a=b) OR (c=d)) AND (e=f)
//
// Terms side by side must be in parentheses, as the API demands; AND and OR in one group must be told apart by
// parentheses, since few readers know which binds closer. What is not in the subset is an error, the older language of
// "eq" and "ne" and regular expressions too. The nil filter matches everything.
type filter struct {
	// Either a comparison,
	field, op, value string
	// or a group.
	all, any []*filter
}

// matches says whether something passes; get gives a field's value, false where it has none.
func (f *filter) matches(get func(field string) (string, bool)) bool {
	switch {
	case f == nil:
		return true
	case f.all != nil:
		return !slices.ContainsFunc(f.all, func(sub *filter) bool { return !sub.matches(get) })
	case f.any != nil:
		return slices.ContainsFunc(f.any, func(sub *filter) bool { return sub.matches(get) })
	}
	value, ok := get(f.field)
	switch f.op {
	case ":":
		return ok
	case "!=":
		return !ok || value != f.value
	}
	return ok && value == f.value
}

// maxFilterDepth bounds the nesting of parentheses.
const maxFilterDepth = 32

var (
	filterWord   = regexp.MustCompile(`^[A-Za-z0-9_./+-]+`)
	labelsPrefix = "labels."
)

// parseFilter reads a filter. Fields are those it may name besides labels, which are allowed where "labels" is among them.
func parseFilter(text string, fields []string) (*filter, error) {
	if strings.TrimSpace(text) == "" {
		if text != "" {
			return nil, errors.New("it is blank")
		}
		return nil, nil
	}
	p := filterParser{rest: text, fields: fields}
	f, err := p.group(0)
	if err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, fmt.Errorf("unexpected %q", p.rest)
	}
	return f, nil
}

type filterParser struct {
	rest   string
	fields []string
}

func (p *filterParser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

// keyword takes a word if it comes next and ends there.
func (p *filterParser) keyword(word string) bool {
	rest, ok := strings.CutPrefix(p.rest, word)
	if !ok || rest != "" && !strings.ContainsRune(" \t(", rune(rest[0])) {
		return false
	}
	p.rest = rest
	return true
}

// group reads terms up to the end or a closing parenthesis.
func (p *filterParser) group(depth int) (*filter, error) {
	if depth > maxFilterDepth {
		return nil, fmt.Errorf("more than %d nested parentheses", maxFilterDepth)
	}
	first, grouped, err := p.term(depth)
	if err != nil {
		return nil, err
	}
	terms, how := []*filter{first}, ""
	for p.space(); p.rest != "" && p.rest[0] != ')'; p.space() {
		word := "AND"
		switch {
		case p.keyword("AND"):
		case p.keyword("OR"):
			word = "OR"
		case !grouped || p.rest[0] != '(':
			return nil, fmt.Errorf("put each of several terms in parentheses, or AND or OR before %q", p.rest)
		}
		if how != "" && how != word {
			return nil, errors.New("AND and OR in one group; put the terms that belong together in parentheses")
		}
		how = word
		var next *filter
		if next, grouped, err = p.term(depth); err != nil {
			return nil, err
		}
		terms = append(terms, next)
	}
	switch how {
	case "AND":
		return &filter{all: terms}, nil
	case "OR":
		return &filter{any: terms}, nil
	}
	return first, nil
}

// term reads a comparison or a group in parentheses, and says which it was.
func (p *filterParser) term(depth int) (f *filter, grouped bool, err error) {
	p.space()
	if rest, ok := strings.CutPrefix(p.rest, "("); ok {
		p.rest = rest
		if f, err = p.group(depth + 1); err != nil {
			return nil, false, err
		}
		p.space()
		if p.rest, ok = strings.CutPrefix(p.rest, ")"); !ok {
			return nil, false, errors.New("a closing parenthesis is missing")
		}
		return f, true, nil
	}
	f, err = p.comparison()
	return f, false, err
}

func (p *filterParser) comparison() (*filter, error) {
	field := filterWord.FindString(p.rest)
	if field == "" {
		return nil, fmt.Errorf("expected a field, found %q", p.rest)
	}
	p.rest = p.rest[len(field):]
	if err := p.checkField(field); err != nil {
		return nil, err
	}
	p.space()
	f := &filter{field: field}
	for _, op := range []string{"!=", "=", ":"} {
		if rest, ok := strings.CutPrefix(p.rest, op); ok {
			f.op, p.rest = op, rest
			break
		}
	}
	if f.op == "" {
		return nil, fmt.Errorf("expected =, != or :* after %q, found %q", field, p.rest)
	}
	p.space()
	if f.op == ":" {
		rest, ok := strings.CutPrefix(p.rest, "*")
		if !ok {
			return nil, fmt.Errorf("only :* is supported after %q", field)
		}
		p.rest = rest
		return f, p.ended()
	}
	var err error
	f.value, err = p.value()
	return f, err
}

func (p *filterParser) checkField(field string) error {
	if key, ok := strings.CutPrefix(field, labelsPrefix); ok && slices.Contains(p.fields, "labels") {
		if !labelKeyPattern.MatchString(key) {
			return fmt.Errorf("%q is no label key", key)
		}
		return nil
	}
	if field == "labels" || !slices.Contains(p.fields, field) {
		return fmt.Errorf("unknown or unsupported field %q", field)
	}
	return nil
}

// value reads a word, or anything in quotes; in quotes, a backslash keeps the next quote or backslash.
func (p *filterParser) value() (string, error) {
	if p.rest == "" || p.rest[0] != '"' {
		word := filterWord.FindString(p.rest)
		if word == "" {
			return "", fmt.Errorf("expected a value, found %q", p.rest)
		}
		p.rest = p.rest[len(word):]
		return word, p.ended()
	}
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch ch := p.rest[i]; ch {
		case '"':
			p.rest = p.rest[i+1:]
			return b.String(), p.ended()
		case '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", errors.New(`only \" and \\ are supported in quotes`)
			}
			b.WriteByte(p.rest[i])
		case '*':
			return "", errors.New("patterns are not supported")
		default:
			b.WriteByte(ch)
		}
	}
	return "", errors.New("a closing quote is missing")
}

// ended makes sure that a value does not run on.
func (p *filterParser) ended() error {
	if p.rest != "" && !strings.ContainsRune(" \t)", rune(p.rest[0])) {
		return fmt.Errorf("unexpected %q", p.rest)
	}
	return nil
}
