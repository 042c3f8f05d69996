package payment_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// schemaFiles are the names of the schemas.
var schemaFiles = []string{"delivery.json", "event.json", "claim-check.json", "envelope.json"}

// compiled returns the compiled schemas by the names of their files, after each was changed.
func compiled(t *testing.T, changes ...func(name string, schema any)) map[string]*jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	const base = "https://payhook.example/schema/"
	for _, name := range schemaFiles {
		text, err := os.ReadFile(filepath.Join("..", "..", "events", "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		schema := parsed(t, text)
		for _, change := range changes {
			change(name, schema)
		}
		if err := compiler.AddResource(base+name, schema); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range schemaFiles {
		var err error
		if all[name], err = compiler.Compile(base + name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func parsed(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return value
}

// notInSchema are the deliveries that are JSON and that only the decoder rejects: a parser
// does not show these differences, or another field carries the value.
var notInSchema = map[string]string{
	"delivery id twice":                 "parsers keep one of two members",
	"event id twice":                    "parsers keep one of two members",
	"amount twice":                      "parsers keep one of two members",
	"name twice in an unknown field":    "parsers keep one of two members",
	"invalid UTF-8":                     "parsers replace it",
	"invalid UTF-8 in an unknown field": "parsers replace it",
	"unpaired surrogate":                "parsers replace it",
	"event id also in another case":     "a schema has no case-insensitive names",
}

// The schema gives the verdict of the decoder, except for notInSchema.
func TestSchemaRejectsWhatTheDecoderRejects(t *testing.T) {
	files, exceptions := compiled(t), 0
	for _, test := range deliveryTests {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(test.payload()))
		if err != nil {
			if test.want == "" {
				t.Errorf("%s: %v", test.name, err)
			}
			continue // not JSON
		}
		accepted := test.want == ""
		if notInSchema[test.name] != "" {
			if accepted {
				t.Errorf("%s: an exception, and the decoder accepts it", test.name)
			}
			accepted = true
			exceptions++
		}
		if err := files["delivery.json"].Validate(value); (err == nil) != accepted {
			t.Errorf("%s: it is accepted: %t, want %t (%v)", test.name, err == nil, accepted, err)
		}
	}
	if exceptions != len(notInSchema) {
		t.Errorf("%d of %d exceptions are tests", exceptions, len(notInSchema))
	}
}

// Every value of a valid event is replaced by values of every JSON type and removed, and
// all schemas give the verdict of DecodeEvent. With null as the only Other, they give that of
// its deviations. The reference to each event that can be published is valid.
func TestSchemaHasTheTypesOfTheDecoder(t *testing.T) {
	files := compiled(t)
	all := append(changes(t, event), string(paymenttest.Encode(paymenttest.Event()))) // that of the simulated service
	strict := compiled(t, func(name string, schema any) {
		if name == "event.json" {
			schema.(map[string]any)["$defs"].(map[string]any)["Other"] = map[string]any{"type": "null"}
		}
	})["event.json"]
	store := bus.NewLargeEvents(&objects.Memory{}, "large-events")
	valid := func(name string, value any) bool { return files[name].Validate(value) == nil }
	for _, changed := range all {
		decoded, err := payment.DecodeEvent([]byte(changed))
		want := err == nil
		value := parsed(t, []byte(changed))
		got := map[string]error{
			"event.json":    files["event.json"].Validate(value),
			"envelope.json": files["envelope.json"].Validate(envelope(value)),
			"delivery.json": files["delivery.json"].Validate(map[string]any{
				"deliveryId": "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", "events": []any{value}}),
		}
		for name, problem := range got {
			if (problem == nil) != want {
				t.Errorf("%s accepts %s: %t, want %t (%v)", name, changed, problem == nil, want, err)
			}
		}
		if err := strict.Validate(value); (err == nil) != (want && decoded.Deviations == nil) {
			t.Errorf("%s has the deviations %q: %v", changed, decoded.Deviations, err)
		}
		if raw, err := payment.DecodeRawEvent([]byte(changed)); want && err == nil {
			text, err := store.Put(t.Context(), raw)
			reference := parsed(t, text)
			if err != nil || !valid("claim-check.json", reference) || !valid("envelope.json", envelope(reference)) ||
				valid("event.json", reference) {
				t.Errorf("%s: %v", text, err)
			}
			for _, missing := range []string{"claimCheck", "eventId", "eventName"} {
				changed := maps.Clone(reference.(map[string]any))
				delete(changed, missing)
				if valid("claim-check.json", changed) {
					t.Errorf("a reference without %s is valid", missing)
				}
			}
		}
	}
	if len(all) < 150 {
		t.Errorf("only %d events", len(all))
	}
}

// changes returns the document in which one value is changed, for every value.
func changes(t *testing.T, text string) (all []string) {
	t.Helper()
	root := parsed(t, []byte(text))
	var visit func(value any)
	visit = func(value any) {
		out, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(out))
		object, _ := value.(map[string]any)
		for name, was := range object {
			for _, other := range []string{"null", "true", "1", "1.5", `"x"`, `""`, "[]", "{}", `["x"]`, "[1]",
				`{"x":1}`} {
				object[name] = parsed(t, []byte(other))
				visit(nil)
			}
			delete(object, name)
			visit(nil)
			object[name] = was
			visit(was)
		}
	}
	visit(root)
	return all
}

// envelope returns the event of EventBridge with a detail.
func envelope(detail any) any {
	return map[string]any{"version": "0", "id": "1", "detail-type": "PAYMENT_STATUS.RELEASED", "source": "payhook",
		"account": "111122223333", "time": "2026-01-31T12:00:00Z", "region": "us-east-1",
		"resources": []any{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"}, "detail": detail}
}
