package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// AllExcept returns all settings but those with these keys.
func AllExcept(keys ...string) []*Setting {
	return slices.DeleteFunc(All(), func(s *Setting) bool { return slices.Contains(keys, s.Key) })
}

// ParsePairs reads KEY=VALUE, or several of them separated by spaces. A value in single or double quotes has all that
// is between them. Another value ends before the next word that has only letters, digits, '.', '_' and '-' before its
// first equals sign. It knows only the settings among.
func ParsePairs(to map[string]string, text string, among []*Setting) error {
	pair := regexp.MustCompile(`^([\w.-]+)=(?:'(.*?)'|"(.*?)"|([^'" ].*?)?)(?: ([\w.-]+=.*))?$`)
	for text = strings.Join(strings.Fields(text), " "); text != ""; {
		found := pair.FindStringSubmatch(text)
		if found == nil {
			return fmt.Errorf("%q must be KEY=VALUE, and a value with spaces can be in quotes: KEY='VALUE'", text)
		}
		key, value := found[1], found[2]+found[3]+found[4]
		named := func(s *Setting) bool { return s.Key == key }
		switch {
		case !slices.ContainsFunc(among, named) && slices.ContainsFunc(declared, named):
			return fmt.Errorf("%s cannot be set here", key)
		case !slices.ContainsFunc(among, named):
			return fmt.Errorf("%s: %s", key, unknown(key, among))
		}
		to[key], text = value, found[5]
	}
	return nil
}
