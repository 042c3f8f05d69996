package cli

import (
	"fmt"
	"slices"
	"strings"

	"payhook.example/shared/settings"
)

// AddSettings reads KEY=VALUE, or several of them separated by spaces. A part without = belongs to the value before it.
// It knows only the settings among.
func AddSettings(to map[string]string, text string, among []*settings.Setting) error {
	last := ""
	for pair := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && last != "" {
			to[last] += " " + pair
			continue
		}
		last = key
		named := func(s *settings.Setting) bool { return s.Key == key }
		switch {
		case !ok:
			return fmt.Errorf("%q must be KEY=VALUE", pair)
		case !slices.ContainsFunc(among, named) && slices.ContainsFunc(settings.All(), named):
			return fmt.Errorf("%s cannot be set here", key)
		case !slices.ContainsFunc(among, named):
			return fmt.Errorf("%s: %s", key, settings.Unknown(key, among))
		}
		to[key] = value
	}
	return nil
}
