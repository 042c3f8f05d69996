package settings

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Setting is the declaration of one setting: a field of [Deployment] with its tags.
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
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Deployment]()) {
		group = cmp.Or(f.Tag.Get("group"), group)
		s := &Setting{Key: f.Tag.Get("key"), Name: f.Name, Group: group, Default: f.Tag.Get("default"),
			Required: f.Tag.Get("required") != "", limits: strings.Fields(f.Tag.Get("limits")),
			texts: strings.Fields(f.Tag.Get("of")), form: forms[f.Tag.Get("form")],
			by: strings.Fields(f.Tag.Get("by")), index: f.Index}
		if slices.Contains(s.by, "proof") {
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
// reads from its environment, or proof for what decides whether the signature of a webhook verifies.
func ReadBy(program string) []*Setting {
	return slices.DeleteFunc(All(), func(s *Setting) bool { return !slices.Contains(s.by, program) })
}

// Named returns the setting with a key. There must be one.
func Named(key string) *Setting {
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

// in returns a pointer to the field of the setting.
func (s *Setting) in(d *Deployment) any {
	return reflect.ValueOf(d).Elem().FieldByIndex(s.index).Addr().Interface()
}
