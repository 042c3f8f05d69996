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

// Value is the value of a setting, and how a person has given it.
type Value struct {
	Text string
	From string // where it is from, such as -c or a file; "" if the name says it
	Name string // of the setting there, such as BaseURL or --base-url; "" for the key
	InGo bool   // whether it is a field of a struct, so that messages write it as Go does
	// Unchecked is whether the form of the text is not checked: the name or ARN of an existing resource can be unknown
	// until the deployment.
	Unchecked bool
}

// Given are the settings of a deployment.
type Given struct {
	Deployment      string           // its name, which no other has in the account and Region
	Local           bool             // whether it is for an emulator on this machine
	Account, Region string           // of the stack; "" if unknown
	Values          map[string]Value // by the keys of the settings
	InGo            bool             // whether a setting that is not given would be a field
}

// Texts returns the values that are given by texts, all in the same place.
func Texts(texts map[string]string, from string) map[string]Value {
	values := map[string]Value{}
	for key, text := range texts {
		values[key] = Value{Text: text, From: from}
	}
	return values
}

// Fields returns the values that fields have which are not zero.
func Fields(fields Settings) (map[string]Value, error) {
	values, d, problems := map[string]Value{}, Deployment{Settings: fields}, []error(nil)
	for _, s := range declared {
		if elements, ok := s.in(&d).(*[]string); ok {
			if _, err := join(*elements); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", s.Name, err))
			}
		}
		if text := d.Text(s); text != "" {
			values[s.Key] = Value{Text: text, Name: s.Name, InGo: true}
		}
	}
	return values, errors.Join(problems...)
}

// ReadFile returns the texts of the members of a JSON object in a file, by their names. A list of texts becomes
// one text. Null and "" are left out. There is none if there is no file. A byte order mark is ignored, as editors on
// Windows write it (RFC 8259, section 8.1). A name that occurs twice in an object is an error.
func ReadFile(name string) (map[string]string, error) {
	var members map[string]any
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err == nil {
		err = json.Unmarshal(bytes.TrimPrefix(content, []byte("\uFEFF")), &members)
	}
	texts := map[string]string{}
	for key, member := range members {
		text, failed := Text(member)
		if failed != nil && err == nil {
			err = fmt.Errorf("%s: %w", key, failed)
		}
		if text != "" {
			texts[key] = text
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return texts, nil
}

// Text returns the text of a JSON value, and "" for null. Numbers and truth values need no quotes.
func Text(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
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

// ParseDeployment parses the settings of a deployment. Its error lists every missing,
// invalid and unknown setting and every rejected combination, one in a line.
func ParseDeployment(given Given) (Deployment, error) {
	r := &reader{given: given, value: func(s *Setting) Value {
		if v, ok := given.Values[s.Key]; ok {
			return v
		}
		v := Value{Text: s.Default, InGo: given.InGo, From: "default"}
		if s.Key == "eventBusName" {
			v.Text = given.Deployment // unique, also if names differ only in case
		}
		if given.InGo {
			v.Name = s.Name
		}
		return v
	}}
	r.read(declared)
	r.to.StackName, r.to.Local = given.Deployment, given.Local
	r.relations()
	for _, key := range slices.Sorted(maps.Keys(given.Values)) {
		if !slices.ContainsFunc(declared, func(s *Setting) bool { return s.Key == key }) {
			r.problem(given.Values[key].shown(key, nil), Unknown(key, declared))
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

// StackName returns the name of a stack, or the default if it is "" or invalid, which [ParseDeployment] reports with
// the other problems.
func StackName(name string) string {
	if s := ByKey("stackName"); s.check(name) != nil {
		return s.Default
	}
	return name
}

// Unknown returns the problem of a key that is none of the settings, with the one that was probably meant: of the
// longer key, at least two thirds are a common beginning and end. Case does not matter.
func Unknown(key string, among []*Setting) string {
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
	to       Deployment
	value    func(*Setting) Value         // also the default, and none as ""
	getenv   func(string) string          // of a function
	file     func(string) ([]byte, error) // of the package of a function
	given    Given                        // of a deployment
	problems []error
	invalid  []string // the keys of the settings with a problem
}

// read parses settings.
func (r *reader) read(list []*Setting) {
	for _, s := range list {
		v := r.value(s)
		// Without a token, only the keys have an address.
		if v.Text == "" && s.Required && (r.value(ByKey("tokenStore")).Text != NoToken || s.Key == "baseUrl") {
			r.invalidate(s, "is required")
		}
		if v.Text == "" && s.Default == "" {
			continue
		}
		err := s.parse(v.Text, &r.to, v.language(s))
		if isToken(v.Text) && !s.form.token {
			err = errors.New("must be a literal, no token of the CDK: it is checked when the template is written")
		}
		if err != nil && !v.Unchecked {
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
	return r.value(s).shown(key, s)
}

// wrong adds a problem of the setting with a key.
func (r *reader) wrong(key, format string, args ...any) {
	r.invalidate(ByKey(key), fmt.Sprintf(format, args...))
}

func (r *reader) invalidate(s *Setting, problem string) {
	r.invalid = append(r.invalid, s.Key)
	v := r.value(s)
	if s.Example != "" {
		problem += " (example: " + v.language(s)(s.Example) + ")"
	}
	r.problem(v.shown(s.Key, s), problem)
}

func (r *reader) problem(name, problem string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, problem))
}

// language returns how a text of a setting is written where the value is from.
func (v Value) language(s *Setting) func(text string) string {
	if v.InGo {
		return s.inGo
	}
	return asText
}

func asText(text string) string { return text }

// shown returns NAME=VALUE (FROM) for a value, of which it shows the beginning; only the name if there is no value.
// s is nil if there is no setting with the key.
func (v Value) shown(key string, s *Setting) string {
	name, text := cmp.Or(v.Name, key), v.Text
	if text == "" {
		return name
	}
	if s != nil && v.InGo {
		text = s.inGo(text)
	} else if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }) {
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
