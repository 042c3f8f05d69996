package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is the declaration of one setting.
type Setting struct {
	Key      string // of the CDK context
	Name     string // of the field
	Group    string
	Default  string // "" for none
	Required bool
	Limits   string // as a person reads it, such as "whole days from 1d to 90d, or off"; "" for none
	Example  string // of a text that has a form; "" for others

	least, most, word string
	unit              time.Duration
	texts             []string // that it can have; none: others can also be valid
	form              form
	by                []string
	index             []int // of the field in Deployment
}

var (
	declared = declarations(reflect.TypeFor[Deployment]())
	units    = map[string]time.Duration{"": 1, "second": time.Second, "hour": time.Hour, "day": day}
)

const day = 24 * time.Hour

// declarations returns the settings of the fields of a struct in Deployment, in their order.
func declarations(in reflect.Type, index ...int) (list []*Setting) {
	group := ""
	for i := range in.NumField() {
		f := in.Field(i)
		f.Index = append(slices.Clone(index), i)
		if f.Anonymous {
			list = append(list, declarations(f.Type, f.Index...)...)
		}
		if title, ok := f.Tag.Lookup("group"); ok {
			group = title
		}
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		s := &Setting{Key: key, Name: f.Name, Group: group, Default: f.Tag.Get("default"),
			Required: f.Tag.Get("required") != "", texts: strings.Fields(f.Tag.Get("of")),
			form: forms[f.Tag.Get("form")],
			by:   strings.Fields(f.Tag.Get("by")), unit: units[f.Tag.Get("unit")], index: f.Index}
		if slices.Contains(s.by, "proof") {
			s.by = append(s.by, "webhook", "redrive")
		}
		s.Example = s.form.example
		if limits := strings.Fields(f.Tag.Get("limits")); len(limits) > 0 {
			limits = append(limits, "")
			s.least, s.most, s.word = limits[0], limits[1], limits[2]
			s.Limits = fmt.Sprintf("from %s to %s", s.least, s.most)
			if unit := f.Tag.Get("unit"); unit != "" {
				s.Limits = "whole " + unit + "s " + s.Limits
			}
			if s.word != "" {
				s.Limits += ", or " + s.word
			}
		}
		list = append(list, s)
	}
	return list
}

// Env returns the name of the environment variable that carries the setting to
// a function: PAYHOOK_BASE_URL for baseUrl.
func (s *Setting) Env() string {
	name := []byte("PAYHOOK_")
	for _, c := range []byte(strings.TrimPrefix(s.Key, Prefix)) {
		if 'A' <= c && c <= 'Z' {
			name = append(name, '_')
		}
		name = append(name, c)
	}
	return strings.ToUpper(string(name))
}

// All returns the settings for users, in the order in which infra/README.md lists them.
func All() []*Setting {
	return slices.DeleteFunc(slices.Clone(declared), func(s *Setting) bool { return strings.HasPrefix(s.Key, Prefix) })
}

// LocalSettings returns the settings that only a local run can change.
func LocalSettings() []*Setting {
	return slices.DeleteFunc(slices.Clone(declared), func(s *Setting) bool { return !strings.HasPrefix(s.Key, Prefix) })
}

// ReadBy returns the settings that a program reads: webhook, redrive or token for what a function
// reads from its environment, or proof for what decides whether the signature of a webhook verifies.
func ReadBy(program string) []*Setting {
	return slices.DeleteFunc(slices.Clone(declared), func(s *Setting) bool { return !slices.Contains(s.by, program) })
}

// onlyToken reports whether only the token function reads the setting.
func (s *Setting) onlyToken() bool { return slices.Equal(s.by, []string{"token"}) }

// Named returns the setting with a key. There must be one.
func Named(key string) *Setting {
	for _, s := range declared {
		if s.Key == key {
			return s
		}
	}
	panic("settings: no setting " + key)
}

// set sets the field of a setting to what a text means.
func (s *Setting) set(field reflect.Value, text string) error {
	switch to := field.Addr().Interface().(type) {
	case *string:
		*to = text
		return s.check(text)
	case *bool:
		*to = text == "true"
		return isOneOf(text, "false", "true")
	case **bool:
		*to = new(text == "true")
		return isOneOf(text, "false", "true")
	case *int:
		var err error
		if *to, err = strconv.Atoi(text); s.least == "" {
			return s.check(text)
		}
		least, _ := strconv.Atoi(s.least)
		most, _ := strconv.Atoi(s.most)
		if err != nil || *to < least || *to > most {
			return fmt.Errorf("must be a whole number %s", s.Limits)
		}
	case *time.Duration:
		return s.setDuration(to, text)
	case *[]string:
		return s.setList(text, func(element string) { *to = append(*to, element) })
	}
	return nil
}

// check checks a text of a setting, or an element of its list.
func (s *Setting) check(text string) error {
	if len(s.texts) > 0 {
		return isOneOf(text, s.texts...)
	}
	if s.form.check == nil || s.form.token && isToken(text) {
		return nil
	}
	return s.form.check(text)
}

// isToken reports whether a text has a token of the CDK: ${Token[…]}, or #{Token[…]} for a list.
func isToken(text string) bool { return strings.Contains(text, "{Token[") }

func isOneOf(text string, options ...string) error {
	if !slices.Contains(options, text) {
		return errors.New("must be " + strings.Join(options, " or "))
	}
	return nil
}

// words are the texts of durations that are not measured.
var words = map[string]time.Duration{"off": Off, "never": Never}

func (s *Setting) setDuration(to *time.Duration, text string) (err error) {
	if text == s.word && text != "" {
		*to = words[text]
		return nil
	}
	least, _ := ParseDuration(s.least)
	most, _ := ParseDuration(s.most)
	if *to, err = ParseDuration(text); err != nil || *to < least || *to > most || *to%s.unit != 0 {
		if s.unit == 1 {
			return fmt.Errorf("must be a duration %s", s.Limits)
		}
		return fmt.Errorf("must be %s", s.Limits)
	}
	return nil
}

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

// setList adds each element of a list.
func (s *Setting) setList(text string, add func(element string)) error {
	elements, err := list(text)
	if err != nil {
		return err
	}
	for _, element := range elements {
		if err := s.check(element); err != nil {
			return err
		}
		add(element)
	}
	return nil
}

// list splits text at semicolons, because names of certificates have commas and spaces. A
// semicolon after a backslash is part of a name. No part is blank, so that a variable without a
// value does not remove a restriction.
func list(text string) (parts []string, err error) {
	start, escaped := 0, false
	for i, c := range text + ";" {
		if c == ';' && (!escaped || i == len(text)) {
			part := strings.TrimSpace(text[start:i])
			if parts = append(parts, part); part == "" {
				return nil, fmt.Errorf("element %d is empty", len(parts))
			}
			start = i + 1
		}
		escaped = c == '\\' && !escaped
	}
	return parts, nil
}

// textOf returns the text of a field, which [Setting.set] reads, and "" for one without a value.
func textOf(field reflect.Value) string {
	switch v := field.Interface().(type) {
	case bool:
		return strconv.FormatBool(v)
	case *bool:
		if v != nil {
			return strconv.FormatBool(*v)
		}
	case int:
		if v != 0 {
			return strconv.Itoa(v)
		}
	case string:
		return v
	case time.Duration:
		return durationText(v)
	case []string:
		return strings.Join(v, ";")
	}
	return ""
}

// durationText returns the shortest text of a duration that [ParseDuration] and the words of
// limits have.
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
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
