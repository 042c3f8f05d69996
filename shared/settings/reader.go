package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// reader reads settings from one source and collects their problems.
type reader struct {
	to       Deployment
	value    func(*Setting) Value         // also the default, and none as ""
	getenv   func(string) string          // of a function
	file     func(string) ([]byte, error) // of the package of a function
	given    Given                        // of a deployment
	problems []error
	invalid  []*Setting // the settings with a problem
}

// read parses settings.
func (r *reader) read(list []*Setting) {
	for _, s := range list {
		v := r.value(s)
		// Without a token, only the keys have an address.
		if v.Text == "" && s.Required && (r.value(Named("tokenStore")).Text != NoToken || s.Key == "baseUrl") {
			r.invalidate(s, "is required")
		}
		if v.Text == "" && s.Default == "" {
			continue
		}
		err := s.parse(v.Text, &r.to)
		if isToken(v.Text) && !s.form.token {
			err = errors.New("must be a literal, no token of the CDK: it is checked when the template is written")
		}
		if err != nil && !v.Unchecked {
			r.invalidate(s, err.Error())
		}
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// of returns the setting of a field of r.to.
func (r *reader) of(field any) *Setting {
	return declared[slices.IndexFunc(declared, func(s *Setting) bool { return s.in(&r.to) == field })]
}

// valid reports whether none of the settings of these fields has a problem.
func (r *reader) valid(fields ...any) bool {
	return !slices.ContainsFunc(fields, func(field any) bool { return slices.Contains(r.invalid, r.of(field)) })
}

// shown returns the name of the setting of a field of r.to with its value, and where that is from.
func (r *reader) shown(field any) string {
	s := r.of(field)
	return r.value(s).shown(s.Key)
}

// wrong adds a problem of the setting of a field of r.to.
func (r *reader) wrong(field any, format string, args ...any) {
	r.invalidate(r.of(field), fmt.Sprintf(format, args...))
}

func (r *reader) invalidate(s *Setting, problem string) {
	r.invalid = append(r.invalid, s)
	v := r.value(s)
	if s.Example != "" {
		problem += " (example: " + s.Example + ")"
	}
	r.problem(v.shown(s.Key), problem)
}

func (r *reader) problem(name, problem string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, problem))
}

// shown returns NAME=VALUE (FROM) for a value, of which it shows the beginning; only the name if there is no value.
func (v Value) shown(key string) string {
	name, text := cmp.Or(v.Name, key), v.Text
	if text == "" {
		return name
	}
	if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }) {
		text = strconv.Quote(text)
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	if v.From != "" {
		text += " (" + v.From + ")"
	}
	return name + "=" + text
}
