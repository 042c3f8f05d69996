package settings

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Setting is the declaration of one setting: a field of [Settings] with its tags.
type Setting struct {
	Key      string // in files, and in the CDK context
	Name     string // of the field
	Group    string
	Default  string // "" for none
	Required bool
	Example  string // of what has a form or is a duration; "" for others

	limits []string // the least, the most, and the word, which may be missing; nil for none
	texts  []string // that it can have; none: others can also be valid
	form   form
	by     []string
	index  []int // of the field
}

var declared = func() (list []*Setting) {
	group := ""
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		group = cmp.Or(f.Tag.Get("group"), group)
		s := &Setting{Key: f.Tag.Get("key"), Name: f.Name, Group: group, Default: f.Tag.Get("default"),
			Required: f.Tag.Get("required") != "", limits: strings.Fields(f.Tag.Get("limits")),
			texts: strings.Fields(f.Tag.Get("of")), form: forms[f.Tag.Get("form")],
			by: strings.Fields(f.Tag.Get("by")), index: f.Index}
		if slices.Contains(s.by, "verify") {
			s.by = append(s.by, "webhook", "redrive")
		}
		s.Example = s.form.example
		if len(s.limits) > 0 {
			s.Example = s.limits[0]
			if words[s.Default] == 0 {
				s.Example = s.Default
			}
		}
		if s.Key != "" {
			list = append(list, s)
		}
	}
	return list
}()

// All returns the settings, in the order in which infra/README.md lists them.
func All() []*Setting { return slices.Clone(declared) }

// ReadBy returns the settings that a program reads: webhook, redrive or token for what a function
// reads from its environment, or verify for what decides whether the signature of a webhook verifies.
func ReadBy(program string) []*Setting {
	return slices.DeleteFunc(All(), func(s *Setting) bool { return !slices.Contains(s.by, program) })
}

// ByKey returns the setting with a key. There must be one.
func ByKey(key string) *Setting {
	for _, s := range declared {
		if s.Key == key {
			return s
		}
	}
	panic("settings: no setting " + key)
}

// Env returns the name of the environment variable that carries the setting to
// a function: PAYHOOK_BASE_URL for baseUrl.
func (s *Setting) Env() string {
	name := []rune("PAYHOOK_")
	for _, c := range s.Key {
		if unicode.IsUpper(c) {
			name = append(name, '_')
		}
		name = append(name, unicode.ToUpper(c))
	}
	return string(name)
}

// in returns a pointer to the field of the setting. That of stackName is not exported, and [Settings.Parse] sets it.
func (s *Setting) in(to *Settings) any {
	if s.Key == "stackName" {
		return new(string)
	}
	return reflect.ValueOf(to).Elem().FieldByIndex(s.index).Addr().Interface()
}

// Text returns the text of a setting, which a file can have; "" if it has no value.
func (s Settings) Text(of *Setting) string {
	switch v := of.in(&s).(type) {
	case *string:
		return *v
	case **bool:
		if *v != nil {
			return strconv.FormatBool(**v)
		}
	case *int:
		if *v != 0 {
			return strconv.Itoa(*v)
		}
	case *time.Duration:
		if *v != 0 {
			return durationText(*v)
		}
	case *[]string:
		return strings.Join(*v, ";")
	}
	return ""
}

// parse sets the field of the setting to what a text means. Its error can be in Go.
func (s *Setting) parse(text string, settings *Settings, inGo bool) (err error) {
	switch to := s.in(settings).(type) {
	case *string:
		*to = text
		return s.check(text)
	case **bool:
		*to = new(text == "true")
		return isOneOf(text, "false", "true")
	case *int:
		*to, _ = strconv.Atoi(text)
		return s.check(text)
	case *time.Duration:
		if slices.Contains(s.limits[2:], text) {
			*to = words[text]
			return nil
		}
		least, _ := ParseDuration(s.limits[0])
		most, _ := ParseDuration(s.limits[1])
		*to, err = ParseDuration(text)
		if err != nil || *to < least || *to > most || *to%s.unit().length != 0 {
			return errors.New("must be " + s.limitsIn(inGo))
		}
	case *[]string:
		*to, err = list(text)
		for _, element := range *to {
			if err == nil {
				err = s.check(element)
			}
		}
	}
	return err
}

// check checks a text of a setting, or an element of its list.
func (s *Setting) check(text string) error {
	switch {
	case len(s.texts) > 0:
		return isOneOf(text, s.texts...)
	case s.form.check == nil || s.form.token && isToken(text):
		return nil
	}
	return s.form.check(text)
}

func isOneOf(text string, options ...string) error {
	if !slices.Contains(options, text) {
		return errors.New("must be " + strings.Join(options, " or "))
	}
	return nil
}

// isToken reports whether a text has a token of the CDK: ${Token[…]}, or #{Token[…]} for a list.
func isToken(text string) bool { return strings.Contains(text, "{Token[") }

// Limits returns the limits as a person reads them, such as "whole days from 1d to 90d, or off"; "" for none.
func (s *Setting) Limits() string { return s.limitsIn(false) }

func (s *Setting) limitsIn(inGo bool) string {
	if len(s.limits) == 0 {
		return ""
	}
	words := []string{fmt.Sprintf("whole %ss from %s to %s", s.unit().name, s.written(s.limits[0], inGo),
		s.written(s.limits[1], inGo))}
	for _, word := range s.limits[2:] {
		words = append(words, "or "+s.written(word, inGo))
	}
	return strings.Join(words, ", ")
}

// written returns a text of the setting, or how Go writes it, as a field of payhook.Props has it.
func (s *Setting) written(text string, inGo bool) string {
	if !inGo {
		return text
	}
	switch s.in(new(Settings)).(type) {
	case *int, **bool:
		return text
	case *[]string:
		elements, _ := list(text)
		return fmt.Sprintf("%#v", elements)
	case *time.Duration:
		d, err := ParseDuration(text)
		if err != nil { // a word
			return "payhook." + strings.ToUpper(text[:1]) + text[1:]
		}
		for _, u := range units[1:] {
			if d%u.length == 0 {
				return fmt.Sprintf("%d*time.%s%s", d/u.length, strings.ToUpper(u.name[:1]), u.name[1:])
			}
		}
		return fmt.Sprintf("time.Duration(%d)", d)
	}
	return strconv.Quote(text)
}

const day = 24 * time.Hour

type unit struct {
	name   string
	length time.Duration
}

var units = []unit{{"day", day}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}}

// unit returns the unit of the least duration, of which every duration is a multiple.
func (s *Setting) unit() unit {
	return units[slices.IndexFunc(units, func(u unit) bool { return strings.HasSuffix(s.limits[0], u.name[:1]) })]
}

// words are the texts of durations that are not measured.
var words = map[string]time.Duration{"off": Off, "never": Never}

// ParseDuration parses a duration as [time.ParseDuration] does, and also whole days, 30d, and
// years of 366 days, 7y, so that no retention is too short.
func ParseDuration(text string) (time.Duration, error) {
	if years, ok := strings.CutSuffix(text, "y"); ok {
		n, err := strconv.ParseUint(years, 10, 8)
		return time.Duration(n) * 366 * day, err
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(text)
}

// durationText returns the shortest text of a duration, or its word.
func durationText(d time.Duration) string {
	for word, value := range words {
		if d == value {
			return word
		}
	}
	if d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// list splits text at semicolons, because names of certificates have commas and spaces. A semicolon after a backslash
// is part of a name. No part is blank, so that a variable without a value does not remove a restriction.
func list(text string) (parts []string, err error) {
	start, escaped := 0, false
	for i, c := range text + ";" {
		if c == ';' && (!escaped || i == len(text)) {
			part := strings.TrimSpace(text[start:i])
			if parts = append(parts, part); part == "" {
				return parts, fmt.Errorf("element %d is empty", len(parts))
			}
			start = i + 1
		}
		escaped = c == '\\' && !escaped
	}
	return parts, nil
}

// join returns the text of a list, of which each element must be one value.
func join(elements []string) (string, error) {
	for i, element := range elements {
		if parts, err := list(element); err != nil || len(parts) != 1 {
			return "", fmt.Errorf("element %d, %q, must be exactly one value", i+1, element)
		}
	}
	return strings.Join(elements, ";"), nil
}
