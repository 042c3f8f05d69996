package settings

import (
	"fmt"
	"slices"
	"strings"
)

// Except returns all settings but those with these keys.
func Except(keys ...string) []*Setting {
	return slices.DeleteFunc(All(), func(s *Setting) bool { return slices.Contains(keys, s.Key) })
}

// AddPairs reads KEY=VALUE, or several of them separated by spaces. A part without = belongs to the value before it.
// It knows only the settings among.
func AddPairs(to map[string]string, text string, among []*Setting) error {
	last := ""
	for pair := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && last != "" {
			to[last] += " " + pair
			continue
		}
		last = key
		named := func(s *Setting) bool { return s.Key == key }
		switch {
		case !ok:
			return fmt.Errorf("%q must be KEY=VALUE", pair)
		case !slices.ContainsFunc(among, named) && slices.ContainsFunc(declared, named):
			return fmt.Errorf("%s cannot be set here", key)
		case !slices.ContainsFunc(among, named):
			return fmt.Errorf("%s: %s", key, Unknown(key, among))
		}
		to[key] = value
	}
	return nil
}
