// Package schema contains the JSON Schemas (2020-12) of a delivery, an event, a
// reference to a large event, and the event of EventBridge that carries them.
//
// Tests compare them with what package payment accepts. [OpenAPI] converts them
// for the EventBridge schema registry, which does not accept JSON Schema 2020-12.
package schema

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Files are the schemas: delivery.json, event.json, claim-check.json and
// envelope.json. Their references are names of files.
//
//go:embed *.json
var Files embed.FS

// The schemas for a schema registry, by their names there.
const (
	Delivery  = "WebhookDelivery"       // the payload of a webhook
	Event     = "PaymentEvent"          // an event of EventBridge with a payment event
	Reference = "PaymentEventReference" // an event of EventBridge with a reference to one
)

// Names returns the names of the schemas for a schema registry.
func Names() []string { return []string{Delivery, Event, Reference} }

// OpenAPI returns an OpenAPI 3.0 document with one of the schemas of [Names] and
// what it refers to, as components. The component AWSEvent is an event of
// EventBridge with this source. OpenAPI panics if there is no such schema.
//
// The document uses no keyword that OpenAPI 3.0 does not have, and no sibling of
// $ref, which OpenAPI 3.0 ignores (https://spec.openapis.org/oas/v3.0.3.html#reference-object).
func OpenAPI(name, source string) string {
	components := map[string]any{}
	switch name {
	case Delivery:
		add(components, "delivery.json")
	case Event, Reference:
		detail := map[string]string{Event: "event.json", Reference: "claim-check.json"}[name]
		add(components, detail)
		add(components, "envelope.json")
		event := components["AWSEvent"].(map[string]any)
		event["x-amazon-events-source"] = source
		event["properties"].(map[string]any)["detail"] = map[string]any{"$ref": component(name)}
	default:
		panic("schema: there is no schema " + name)
	}
	text, err := json.Marshal(map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": name, "version": "1.0.0"},
		"paths": map[string]any{}, "components": map[string]any{"schemas": components},
	})
	if err != nil {
		panic(err) // it consists of parsed JSON
	}
	return string(text)
}

func component(name string) string { return "#/components/schemas/" + name }

// add adds the schema in a file to the components, with its definitions and the files
// that it refers to, except the alternatives of envelope.json.
func add(components map[string]any, file string) {
	schema := parse(file)
	name := schema["title"].(string)
	definitions, _ := schema["$defs"].(map[string]any)
	for _, key := range []string{"$schema", "$id", "$defs", "title"} {
		delete(schema, key)
	}
	if name == "AWSEvent" {
		schema["properties"].(map[string]any)["detail"] = map[string]any{}
	}
	components[name] = convert(components, schema)
	for _, key := range slices.Sorted(maps.Keys(definitions)) {
		components[key] = convert(components, definitions[key])
	}
}

func parse(file string) (schema map[string]any) {
	text, err := Files.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		panic(fmt.Sprintf("schema: %s: %v", file, err)) // a test parses each file
	}
	return schema
}

// convert replaces every reference in value, and adds the files that it refers to.
func convert(components map[string]any, value any) any {
	switch v := value.(type) {
	case map[string]any:
		to, ok := v["$ref"].(string)
		if !ok {
			for key, member := range v {
				v[key] = convert(components, member)
			}
			return v
		}
		name, local := strings.CutPrefix(to, "#/$defs/")
		if !local {
			name = parse(to)["title"].(string)
			add(components, to)
		}
		return map[string]any{"$ref": component(name)}
	case []any:
		for i := range v {
			v[i] = convert(components, v[i])
		}
	}
	return value
}
