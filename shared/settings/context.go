package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ReadContext returns the texts in the CDK context of a file: cdk.json, .cdk.json or
// cdk.context.json, which has nothing but the context. There are none if there is no file.
func ReadContext(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var content struct{ Context map[string]any }
	switch {
	case err != nil:
	case filepath.Base(file) == "cdk.context.json":
		err = json.Unmarshal(text, &content.Context)
	default:
		err = json.Unmarshal(text, &content)
	}
	if err != nil {
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
// probably meant.
func Unknown(key string, among []*Setting) string {
	var keys []string
	for _, s := range among {
		keys = append(keys, s.Key)
	}
	return "no such setting" + DidYouMean(key, keys)
}

// DidYouMean returns the question whether the word that is most similar to a text was meant, and
// "" if none is similar: of the longer one, at least two thirds are a common beginning and end.
// Case does not matter.
func DidYouMean(text string, words []string) (question string) {
	best := 0.0
	for _, word := range words {
		a, b := strings.ToLower(text), strings.ToLower(word)
		start, end := 0, 0
		for start < min(len(a), len(b)) && a[start] == b[start] {
			start++
		}
		for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
			end++
		}
		if same := float64(start+end) / float64(max(len(a), len(b))); same > best && same >= 2.0/3 {
			question, best = "; did you mean "+word+"?", same
		}
	}
	return question
}
