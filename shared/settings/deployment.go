package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Given are the settings of a deployment.
type Given struct {
	// Deployment is the name of the deployment, which differs from that of every other
	// deployment in the account and region.
	Deployment string
	// Local reports whether the deployment is for an emulator on this machine.
	Local bool
	// Account and Region are where the stack is deployed; "" if unknown.
	Account, Region string
	BusARN          string            // of an existing bus; "" for none
	Texts           map[string]string // of the CDK context, by their keys
	Fields          Settings          // replace Texts
	// FieldNames is whether problems have the names of fields also for settings that are not set.
	FieldNames bool
	// Names are the names in problems of settings that are given in another way, by their keys.
	Names map[string]string
	// Unchecked are the keys of texts whose form is not checked: names and ARNs of existing
	// resources, which can be unknown until the deployment.
	Unchecked map[string]bool
}

// ParseDeployment parses the settings of a deployment. Its error lists every missing,
// invalid and unknown setting and every rejected combination, one in a line.
func ParseDeployment(given Given) (Deployment, error) {
	texts := map[string]string{"eventBusName": DefaultBusName(given.Deployment)}
	maps.Copy(texts, given.Texts)
	names := map[string]string{}
	r := fromTexts(texts)
	r.given = given
	r.name = func(s *Setting) string { return cmp.Or(given.Names[s.Key], names[s.Key], s.Key) }
	known := declared
	if !given.Local {
		known = All()
		for _, s := range LocalSettings() {
			delete(texts, s.Key)
		}
	}
	fields := reflect.ValueOf(Deployment{Settings: given.Fields})
	for _, s := range declared {
		field := fields.FieldByIndex(s.index)
		if given.FieldNames || !field.IsZero() {
			names[s.Key] = s.Name
		}
		if !field.IsZero() {
			texts[s.Key] = textOf(field)
			r.oneValueEach(s, field)
		}
	}
	r.read(declared)
	r.to.StackName, r.to.Local = given.Deployment, given.Local
	r.relations()
	for _, key := range slices.Sorted(maps.Keys(given.Texts)) {
		if !slices.ContainsFunc(known, func(s *Setting) bool { return s.Key == key }) {
			r.problem(key, Unknown(key, known))
		}
	}
	return r.to, r.err()
}

// Text returns the text of the setting with a key.
func (d Deployment) Text(s *Setting) string { return textOf(reflect.ValueOf(d).FieldByIndex(s.index)) }

// DefaultBusName returns the name of the bus of a deployment without the setting
// eventBusName: that of the deployment, with the name of the stack in lower case.
func DefaultBusName(deployment string) string {
	stack, id, ok := strings.Cut(deployment, "_")
	name := strings.ToLower(stack)
	if ok {
		name += "_" + id
	}
	return name[:min(len(name), maxBusName)]
}

// TextIn returns the text of a setting in texts, and its default if there is none.
func TextIn(texts map[string]string, key string) string {
	if text, ok := texts[key]; ok {
		return text
	}
	return Named(key).Default
}

// StackName returns the name of the stack in texts, and the default if there is none or it is
// invalid, which [ParseDeployment] reports with the other problems.
func StackName(texts map[string]string) string {
	if name := TextIn(texts, "stackName"); Named("stackName").check(name) == nil {
		return name
	}
	return TextIn(nil, "stackName")
}

// reader reads settings from one source and collects their problems.
type reader struct {
	to       Deployment
	name     func(*Setting) string
	text     func(*Setting) string
	getenv   func(string) string          // of a function
	file     func(string) ([]byte, error) // of the package of a function
	given    Given                        // of a deployment
	problems []error
	invalid  []*Setting // the settings with a problem
}

func fromTexts(texts map[string]string) *reader {
	return &reader{
		name: func(s *Setting) string { return s.Key },
		text: func(s *Setting) string { return TextIn(texts, s.Key) },
	}
}

// read parses settings.
func (r *reader) read(list []*Setting) {
	to := reflect.ValueOf(&r.to).Elem()
	for _, s := range list {
		text := r.text(s)
		token := isToken(text)
		if text == "" && s.Required && (!s.onlyToken() || r.text(Named("tokenStore")) != NoToken) {
			r.invalidate(s, "is required")
		} else if text != "" || s.Default != "" {
			err := s.set(to.FieldByIndex(s.index), text)
			switch {
			case r.given.Unchecked[s.Key] || slices.Contains(r.invalid, s):
			case token && !s.form.token:
				r.invalidate(s, "must be a literal, no token of the CDK: it is checked when the template is written")
			case err != nil:
				r.invalidate(s, err.Error())
			}
		}
	}
}

// oneValueEach reports elements of a list that are not exactly one value.
func (r *reader) oneValueEach(s *Setting, field reflect.Value) {
	elements, _ := field.Interface().([]string)
	for i, element := range elements {
		if parts, err := list(element); err != nil || len(parts) != 1 {
			r.invalidate(s, fmt.Sprintf("element %d, %q, must be exactly one value", i+1, element))
		}
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// of returns the setting of a field of r.to.
func (r *reader) of(field any) *Setting {
	to := reflect.ValueOf(&r.to).Elem()
	return declared[slices.IndexFunc(declared, func(s *Setting) bool {
		return to.FieldByIndex(s.index).Addr().Interface() == field
	})]
}

// isGiven reports whether the setting of a field of r.to is given, also with the text of its default.
func (r *reader) isGiven(field any) bool {
	s := r.of(field)
	in := reflect.ValueOf(Deployment{Settings: r.given.Fields})
	return r.given.Texts[s.Key] != "" || textOf(in.FieldByIndex(s.index)) != ""
}

// valid reports whether none of the settings of these fields has a problem.
func (r *reader) valid(fields ...any) bool {
	return !slices.ContainsFunc(fields, func(field any) bool { return slices.Contains(r.invalid, r.of(field)) })
}

// nameOf returns the name that the user knows for the setting of a field of r.to.
func (r *reader) nameOf(field any) string { return r.name(r.of(field)) }

// wrong adds a problem of the setting of a field of r.to.
func (r *reader) wrong(field any, format string, args ...any) {
	r.invalidate(r.of(field), fmt.Sprintf(format, args...))
}

func (r *reader) invalidate(s *Setting, problem string) {
	r.invalid = append(r.invalid, s)
	if s.Example != "" {
		problem += " (example: " + s.Example + ")"
	}
	r.problem(r.name(s), problem)
}

func (r *reader) problem(name, problem string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, problem))
}
