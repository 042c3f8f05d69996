package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// ReadContext returns the texts in the context of a file such as cdk.json. There are none if there is
// no file.
func ReadContext(file string) (map[string]string, error) {
	var content struct{ Context map[string]any }
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return Texts(content.Context), nil
}

// Texts returns the texts of the settings in a CDK context, as its option -c takes them. It leaves
// out null and the keys of the CDK and of a local run. All other keys must be settings.
func Texts(context map[string]any) map[string]string {
	texts := map[string]string{}
	for key, value := range context {
		if value != nil && !ofCDK(key) {
			texts[key] = Text(value)
		}
	}
	return texts
}

// Text returns a value of a CDK context as -c takes it, and "" for nil. In cdk.json, numbers and
// booleans need no quotes.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		text, _ := json.Marshal(v) // it was JSON
		return string(text)
	}
}

// ofCDK reports whether a context key is one of the CDK: feature flags
// (@aws-cdk/…), lookups (availability-zones:…), information about the invocation
// (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. Those of a local run
// (payhook:local) are not settings for users either.
func ofCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// Unknown returns the problem of a key that is none of the settings, with the one that was
// probably meant: of the longer key, at least two thirds are a common beginning and end. Case
// does not matter.
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
