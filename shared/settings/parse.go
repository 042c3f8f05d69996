package settings

import (
	"bytes"
	"cmp"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Stack is the stack that settings are for.
type Stack struct {
	Name            string // no other one in the account and Region has it; "": the setting stackName
	Local           bool   // whether it is for an emulator on this machine
	Account, Region string // "" if unknown
}

// text is the text of a setting.
type text struct {
	text string
	name string // of the setting, as the text's author knows it: its key, its field or its variable
	from string // such as -c or a file; "" if the name says it
	inGo bool   // whether it is for a field, so that messages write it as Go does
	err  error  // an element of a list that is not one value
}

// byDefault is where the text of a setting is from that is not given.
const byDefault = "default"

// Add adds texts by the keys of settings, which are all from the same place. They replace earlier ones. A field that is
// not zero replaces the text of its setting.
func (s *Settings) Add(texts map[string]string, from string) {
	s.given = maps.Clone(s.given)
	if s.given == nil {
		s.given = map[string]text{}
	}
	for key, t := range texts {
		s.given[key] = text{text: t, name: key, from: from}
	}
}

// text returns the text of the setting: of its field, the added one, or its default.
func (s Settings) text(of *Setting) text {
	if field := s.Text(of); field != "" {
		t := text{text: field, name: of.Name, inGo: true}
		if elements, ok := of.in(&s).(*[]string); ok {
			_, t.err = join(*elements)
		}
		return t
	}
	if t, ok := s.given[of.Key]; ok {
		return t
	}
	t := text{text: of.Default, name: of.Key, from: byDefault, inGo: s.given == nil}
	if t.inGo {
		t.name = of.Name
	}
	if of.Key == "eventBusName" {
		t.text = s.stackName // unique, also if names differ only in case
	}
	return t
}

// Given returns the name of a setting where it is given: its key or its field. It returns "" for one that is not given.
func (s Settings) Given(key string) string {
	t := s.text(ByKey(key))
	if t.text == "" || t.from == byDefault {
		return ""
	}
	return t.name
}

// ReadFile returns the texts of the members of a JSON object in a file, as [Texts] does, without those that are "".
// There is none if there is no file. A byte order mark is ignored, as editors on Windows write it (RFC 8259, section
// 8.1). A name that occurs twice in an object is an error.
func ReadFile(name string) (map[string]string, error) {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	var members map[string]any
	if err == nil {
		err = json.Unmarshal(bytes.TrimPrefix(content, []byte("\uFEFF")), &members)
	}
	var texts map[string]string
	if err == nil {
		texts, err = Texts(members)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	maps.DeleteFunc(texts, func(_, text string) bool { return text == "" })
	return texts, nil
}

// Texts returns the texts of JSON values by their names, without those that are null. Numbers and truth values need no
// quotes. A list of texts becomes one text.
func Texts(members map[string]any) (map[string]string, error) {
	texts := map[string]string{}
	for key, member := range members {
		if member == nil {
			continue
		}
		var err error
		if texts[key], err = textOf(member); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return texts, nil
}

func textOf(value any) (string, error) {
	switch v := value.(type) {
	case string, bool:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		var elements []string
		for _, element := range v {
			text, ok := element.(string)
			if !ok {
				return "", errors.New("must be a list of texts")
			}
			elements = append(elements, text)
		}
		return join(elements)
	}
	return "", errors.New("must be a text, a number, true, false or a list of texts")
}

// Parse parses the settings of a stack: those that fields have, those that were added, and defaults. Its error lists
// every missing, invalid and unknown setting and every rejected combination, one in a line.
func (s Settings) Parse(stack Stack) (Settings, error) {
	s.stackName, s.local = cmp.Or(stack.Name, s.StackName()), stack.Local
	r := &reader{text: s.text, stack: stack}
	r.to.stackName, r.to.local, r.to.files = s.stackName, s.local, map[string][]byte{}
	r.read(declared)
	r.relations()
	for _, key := range slices.Sorted(maps.Keys(s.given)) {
		if !slices.ContainsFunc(declared, func(d *Setting) bool { return d.Key == key }) {
			r.problem(s.given[key].shown(nil), unknown(key, declared))
		}
	}
	return r.to, r.err()
}

// TextOf returns the text of a setting in texts, and its default if there is none.
func TextOf(texts map[string]string, key string) string {
	if text, ok := texts[key]; ok {
		return text
	}
	return ByKey(key).Default
}

// StackName returns the name of the stack. Before [Settings.Parse], it is the setting stackName, or the default if that
// is invalid, which Parse reports with the other problems.
func (s Settings) StackName() string {
	setting := ByKey("stackName")
	name := cmp.Or(s.stackName, s.given[setting.Key].text)
	if s.stackName == "" && setting.check(name) != nil {
		return setting.Default
	}
	return name
}

// unknown returns the problem of a key that is none of the settings, with the one that was probably meant: of the
// longer key, at least two thirds are a common beginning and end. Case does not matter.
func unknown(key string, among []*Setting) string {
	problem, best := "no such setting", 0.0
	for _, s := range among {
		a, b := strings.ToLower(key), strings.ToLower(s.Key)
		short, start, end := min(len(a), len(b)), 0, 0
		for start < short && a[start] == b[start] {
			start++
		}
		for end < short-start && a[len(a)-1-end] == b[len(b)-1-end] {
			end++
		}
		if same := float64(start+end) / float64(max(len(a), len(b))); same >= 2.0/3 && same > best {
			problem, best = "no such setting; did you mean "+s.Key+"?", same
		}
	}
	return problem
}

// reader reads settings from one source and collects their problems.
type reader struct {
	to       Settings
	text     func(*Setting) text          // also the default, and none as ""
	getenv   func(string) string          // of a function
	file     func(string) ([]byte, error) // of the package of a function
	stack    Stack                        // of settings of a stack
	problems []error
	invalid  []string // the keys of the settings with a problem
}

// read parses settings.
func (r *reader) read(list []*Setting) {
	for _, s := range list {
		t := r.text(s)
		// Without a token, only the keys have an address.
		if t.text == "" && s.Required && (r.text(ByKey("tokenStore")).text != NoToken || s.Key == "baseUrl") {
			r.invalidate(s, "is required")
		}
		if t.text == "" && s.Default == "" {
			continue
		}
		err := cmp.Or(t.err, s.parse(t.text, &r.to, t.inGo))
		if isToken(t.text) && !s.form.token {
			err = errors.New("must be a literal, no token of the CDK: it is checked when the template is written")
		}
		if err != nil {
			r.invalidate(s, err.Error())
		}
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// valid reports whether none of the settings with these keys has a problem.
func (r *reader) valid(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(r.invalid, key) })
}

// shown returns the name of the setting with a key and its value, and where that is from.
func (r *reader) shown(key string) string {
	s := ByKey(key)
	return r.text(s).shown(s)
}

// wrong adds a problem of the setting with a key.
func (r *reader) wrong(key, format string, args ...any) {
	r.invalidate(ByKey(key), fmt.Sprintf(format, args...))
}

func (r *reader) invalidate(s *Setting, problem string) {
	r.invalid = append(r.invalid, s.Key)
	t := r.text(s)
	if s.Example != "" {
		problem += " (example: " + s.written(s.Example, t.inGo) + ")"
	}
	r.problem(t.shown(s), problem)
}

func (r *reader) problem(name, problem string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, problem))
}

// shown returns NAME=VALUE (FROM), with the beginning of the value; only the name if there is no value. s is nil if
// there is no such setting.
func (t text) shown(s *Setting) string {
	value := t.text
	if value == "" {
		return t.name
	}
	if t.inGo {
		value = s.written(value, true)
	} else if strings.ContainsFunc(value, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }) {
		value = strconv.Quote(value)
	}
	if runes := []rune(value); len(runes) > 60 {
		value = string(runes[:60]) + "…"
	}
	if t.from != "" {
		value += " (" + t.from + ")"
	}
	return t.name + "=" + value
}
