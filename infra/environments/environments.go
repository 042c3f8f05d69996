// Package environments reads the files of this folder: each has the settings of the stack of one
// environment, and the AWS profile and region to which it is deployed. "make deploy ENV=NAME"
// uses NAME.json.
package environments

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payhook.example/shared/settings"
)

// Folder is the folder of the files, below the top of the repository.
const Folder = "infra/environments"

// Environment is what a file has.
type Environment struct {
	Profile  string            // of the AWS configuration; "": as for the AWS CLI
	Region   string            // "": as for the AWS CLI
	Settings map[string]string // the texts of settings by their keys; with stackName
}

// Read reads the file of an environment in a folder. Its error lists all problems of the file, or
// the environments that exist.
func Read(folder, name string) (Environment, error) {
	var e Environment
	text, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if err != nil || filepath.Base(name) != name {
		return e, unknown(folder, name)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return e, fmt.Errorf("%s/%s.json: must be a JSON object: %w", Folder, name, err)
	}
	members := map[string]any{"profile": &e.Profile, "region": &e.Region, "settings": new(map[string]json.RawMessage)}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if members[key] == nil {
			problems = append(problems, fmt.Errorf("%s: no such member%s", key,
				settings.DidYouMean(key, slices.Sorted(maps.Keys(members)))))
		} else if err := json.Unmarshal(file[key], members[key]); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", key, err))
		}
	}
	e.Settings = Texts(*members["settings"].(*map[string]json.RawMessage))
	for _, key := range slices.Sorted(maps.Keys(e.Settings)) {
		if !slices.ContainsFunc(settings.All(), func(s *settings.Setting) bool { return s.Key == key }) {
			problems = append(problems, fmt.Errorf("settings.%s: %s", key, settings.Unknown(key, settings.All())))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return e, fmt.Errorf("%s/%s.json:\n  %s", Folder, name, strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return e, nil
}

// unknown returns the error of a name that has no file.
func unknown(folder, name string) error {
	var names []string
	files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return fmt.Errorf("there is no environment %q%s; %s has: %s", name, settings.DidYouMean(name, names), Folder,
		strings.Join(names, ", "))
}

// Texts returns JSON values as the CDK's option -c takes them: strings without quotation marks. It
// leaves out null.
func Texts(values map[string]json.RawMessage) map[string]string {
	texts := map[string]string{}
	for key, value := range values {
		text := string(value) // of a number or true
		_ = json.Unmarshal(value, &text)
		if string(value) != "null" {
			texts[key] = text
		}
	}
	return texts
}
