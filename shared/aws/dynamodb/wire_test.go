package dynamodb_test

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/objects"
)

func init() { objects.PauseOf = func(longest time.Duration) time.Duration { return longest } }

// answering returns a client of a server with these answers.
func answering(t *testing.T, answers ...string) (*dynamodb.Client, *awstest.Wire) {
	t.Helper()
	return serving(t, awstest.InTurn(answers...))
}

func serving(t *testing.T, answer func(awstest.Request) string) (*dynamodb.Client, *awstest.Wire) {
	t.Helper()
	w := awstest.NewWire(t, answer)
	return dynamodb.NewClient(awstest.Config(w.URL)), w
}

// value is an attribute value in JSON.
type value map[string]any

func text(s string) value { return value{"S": s} }

func number(n int64) value { return value{"N": fmt.Sprint(n)} }

// encoded returns a value in JSON.
func encoded(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// decoded returns a request or answer.
func decoded[T any](t *testing.T, raw string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// lines returns a line for each member of a request, in order, without its table. Attribute values have the form of
// Go: a text "a", a number 1, bytes b"a".
func lines(t *testing.T, r awstest.Request) string {
	t.Helper()
	var all []string
	for name, v := range decoded[map[string]any](t, r.Body) {
		if name != "TableName" {
			all = append(all, name+": "+plain(v))
		}
	}
	sort.Strings(all)
	return r.Operation + "\n" + strings.Join(all, "\n")
}

func plain(v any) string {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["S"].(string); ok {
			return fmt.Sprintf("%q", s)
		} else if n, ok := v["N"].(string); ok {
			return n
		} else if b, ok := v["B"].(string); ok {
			var raw []byte
			if err := json.Unmarshal([]byte(encoded(b)), &raw); err != nil {
				return err.Error()
			}
			return fmt.Sprintf("b%q", raw)
		} else if yes, ok := v["BOOL"]; ok {
			return fmt.Sprint(yes)
		}
		var all []string
		for name, member := range v {
			all = append(all, name+"="+plain(member))
		}
		sort.Strings(all)
		return "{" + strings.Join(all, " ") + "}"
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, plain(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(v)
}

// sends fails the test unless do makes that request of the one that is wanted.
func sends(t *testing.T, w *awstest.Wire, want string, do func()) {
	t.Helper()
	do()
	var got []string
	for _, r := range w.Requests() {
		got = append(got, lines(t, r))
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(strings.Join(got, "\n\n"), "\n")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
