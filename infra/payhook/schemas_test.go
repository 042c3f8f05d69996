package payhook

import (
	"encoding/json"
	"testing"

	"payhook.example/events/schema"
)

func TestSchemasAreRegistered(t *testing.T) {
	tm := payhook(t, map[string]any{"eventSource": "payments.hook"})
	for _, name := range schema.Names() {
		properties := tm.get(t, "Schemas/"+name, "AWS::EventSchemas::Schema").Properties
		if properties["Content"] != schema.OpenAPI(name, "payments.hook") || properties["SchemaName"] != name ||
			properties["Type"] != "OpenApi3" {
			t.Errorf("%s: %v", name, properties)
		}
		if got := tm.render(properties["RegistryName"]); got != "Schemas/Registry.RegistryName" {
			t.Errorf("%s is in the registry %s", name, got)
		}
		if !json.Valid([]byte(properties["Content"].(string))) {
			t.Errorf("%s is not JSON", name)
		}
	}
	if n := len(tm.all(t, "AWS::EventSchemas::Schema")); n != len(schema.Names()) {
		t.Errorf("%d schemas", n)
	}
}

func TestTheSchemaRegistryCanBeLeftOut(t *testing.T) {
	tm := payhook(t, map[string]any{"schemaRegistry": false})
	for name, r := range tm.Resources {
		if r.Type == "AWS::EventSchemas::Registry" || r.Type == "AWS::EventSchemas::Schema" {
			t.Errorf("%s is in the template", name)
		}
	}
	if _, ok := tm.Outputs["SchemaRegistry"]; ok {
		t.Error("an output names the registry")
	}
}
