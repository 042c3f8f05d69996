package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text returns the text of a setting, which a file can have; "" if it has no value.
func (d Deployment) Text(s *Setting) string {
	switch v := s.in(&d).(type) {
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

// errRequirement is the error of a text that is not as [Setting.requirement] says.
var errRequirement = errors.New("settings: not as required")

// parse sets the field of the setting to what a text means.
func (s *Setting) parse(text string, d *Deployment) (err error) {
	switch to := s.in(d).(type) {
	case *string:
		*to = text
		return s.check(text)
	case **bool:
		*to = new(text == "true")
		if text != "true" && text != "false" {
			return errRequirement
		}
	case *int:
		if *to, err = strconv.Atoi(text); len(s.limits) == 0 {
			return s.check(text)
		}
		least, _ := strconv.Atoi(s.limits[0])
		most, _ := strconv.Atoi(s.limits[1])
		if err != nil || *to < least || *to > most {
			return errRequirement
		}
	case *time.Duration:
		if text != "" && slices.Contains(s.limits[2:], text) {
			*to = words[text]
			return nil
		}
		least, _ := ParseDuration(s.limits[0])
		most, _ := ParseDuration(s.limits[1])
		*to, err = ParseDuration(text)
		if err != nil || *to < least || *to > most || *to%units[s.limits[0][len(s.limits[0])-1]].length != 0 {
			return errRequirement
		}
	case *[]string:
		*to, err = list(text)
		for _, element := range *to {
			err = cmp.Or(err, s.check(element))
		}
		return err
	}
	return nil
}

// check checks a text of a setting, or an element of its list.
func (s *Setting) check(text string) error {
	switch {
	case len(s.texts) > 0 && !slices.Contains(s.texts, text):
		return errRequirement
	case s.form.check == nil || s.form.token && isToken(text):
		return nil
	}
	return s.form.check(text)
}

// isToken reports whether a text has a token of the CDK: ${Token[…]}, or #{Token[…]} for a list.
func isToken(text string) bool { return strings.Contains(text, "{Token[") }

// Limits returns the limits as a person reads them, such as "whole days from 1d to 90d, or off"; "" for none.
func (s *Setting) Limits() string { return s.limitsIn(func(text string) string { return text }) }

func (s *Setting) limitsIn(language func(text string) string) string {
	if len(s.limits) == 0 {
		return ""
	}
	text := fmt.Sprintf("from %s to %s", language(s.limits[0]), language(s.limits[1]))
	if unit, ok := units[s.limits[0][len(s.limits[0])-1]]; ok {
		text = "whole " + unit.name + "s " + text
	}
	for _, word := range s.limits[2:] {
		text += ", or " + language(word)
	}
	return text
}

// requirement returns what a setting with limits, texts or a truth value must be, with values in a language.
func (s *Setting) requirement(language func(text string) string) string {
	limits := s.limitsIn(language)
	switch s.in(new(Deployment)).(type) {
	case *int:
		return "must be a whole number " + limits
	case *time.Duration:
		return "must be " + limits
	case **bool:
		return "must be false or true"
	}
	var texts []string
	for _, text := range s.texts {
		texts = append(texts, language(text))
	}
	return "must be " + strings.Join(texts, " or ")
}

// inGo returns the value that a text means in Go, for a field of payhook.Props.
func (s *Setting) inGo(text string) string {
	switch s.in(new(Deployment)).(type) {
	case *int:
		return text
	case *[]string:
		elements, _ := list(text)
		for i, element := range elements {
			elements[i] = strconv.Quote(element)
		}
		return "[]string{" + strings.Join(elements, ", ") + "}"
	case *time.Duration:
		d, err := ParseDuration(text)
		if err != nil { // a word
			return "payhook." + strings.ToUpper(text[:1]) + text[1:]
		}
		for _, letter := range []byte("hms") {
			if u := units[letter]; d%u.length == 0 {
				return fmt.Sprintf("%d*time.%s%s", d/u.length, strings.ToUpper(u.name[:1]), u.name[1:])
			}
		}
		return fmt.Sprintf("time.Duration(%d)", d)
	}
	return strconv.Quote(text)
}

const day = 24 * time.Hour

// units are the units of durations, by their letters.
var units = map[byte]struct {
	name   string
	length time.Duration
}{'s': {"second", time.Second}, 'm': {"minute", time.Minute}, 'h': {"hour", time.Hour}, 'd': {"day", day}}

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

// join returns the text of a list, of which each element must be one value.
func join(elements []string) (string, error) {
	for i, element := range elements {
		if parts, err := list(element); err != nil || len(parts) != 1 {
			return "", fmt.Errorf("element %d, %q, must be exactly one value", i+1, element)
		}
	}
	return strings.Join(elements, ";"), nil
}
