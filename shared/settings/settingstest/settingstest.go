// Package settingstest tests how functions start with their settings.
package settingstest

import (
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

// Starts fails a test unless a function starts without any of the settings that have
// a default, starts with each of these defaults, and names each of the resources that
// it does not start without. list are the settings of the function, resources the
// environment variables that name its resources, and start starts it with an
// environment.
//
// A new version may start with the environment of the previous template, which
// lacks any of its settings.
func Starts(t *testing.T, list []*settings.Setting, resources []string, start func(getenv func(string) string) error) {
	t.Helper()
	env := map[string]string{"AWS_REGION": "us-east-1"}
	getenv := func(name string) string { return env[name] }
	for _, name := range resources {
		env[name] = "x"
	}
	for _, s := range list {
		if s.Required || s == settings.EventBusName {
			env[s.Env()] = s.Example
		}
	}
	if err := start(getenv); err != nil {
		t.Errorf("with what is required alone: %v", err)
	}
	for _, s := range list {
		if s.Default == "" {
			continue
		}
		env[s.Env()] = s.Default
		if err := start(getenv); err != nil {
			t.Errorf("with %s alone: %v", s.Env(), err)
		}
		delete(env, s.Env())
	}
	for _, name := range append(resources, "AWS_REGION") {
		value := env[name]
		delete(env, name)
		if err := start(getenv); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		env[name] = value
	}
}
