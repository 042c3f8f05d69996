package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"payhook.example/infra/environments"
	"payhook.example/shared/settings"
)

// given is what the arguments of the CDK CLI say about the deployment.
type given struct {
	profile, region string
	context         []string // KEY=VALUE
}

// parse reads the arguments of the CDK CLI, which has many more.
func parse(args []string) (g given) {
	f := pflag.NewFlagSet("cdk", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.Usage = func() {}
	f.StringVar(&g.profile, "profile", "", "")
	f.StringVar(&g.region, "region", "", "")
	f.StringArrayVarP(&g.context, "context", "c", nil, "")
	_ = f.Parse(args) // the CDK CLI reports what is wrong
	return g
}

// settings checks the settings of the app in a place, of which account and region are "" if unknown. It returns the
// name of the stack, also with an error.
func (c *call) settings(p place) (stack string, err error) {
	texts, err := c.texts()
	if err != nil {
		return "", err
	}
	if stack = texts[settings.StackName.Key]; !settings.StackName.Accepts(stack) {
		stack = settings.StackName.Default
	}
	given := settings.Given{Deployment: stack, Texts: texts, Account: p.account, Region: p.region}
	if _, err := settings.ParseDeployment(given); err != nil {
		file := `in cdk.json under "context", or in a file of ` + environments.Folder + " (ENV=NAME)"
		if c.name != "" {
			file = `in ` + environments.Folder + "/" + c.name + `.json under "settings"`
		}
		return stack, fmt.Errorf("these settings are wrong:\n\n  %s\n\nSet each %s, or with ARGS=\"-c NAME=VALUE\"",
			strings.ReplaceAll(err.Error(), "\n", "\n  "), file)
	}
	return stack, nil
}

// texts returns the texts of the settings, in the order in which the CDK CLI reads them: a later
// one replaces an earlier one. Other keys of the context are left out.
func (c *call) texts() (map[string]string, error) {
	texts := map[string]string{}
	for _, file := range []string{filepath.Join(c.home, ".cdk.json"), "cdk.context.json", "cdk.json"} {
		values, err := contextOf(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		maps.Copy(texts, environments.Texts(values))
	}
	maps.Copy(texts, c.environment.Settings)
	for _, pair := range c.given.context {
		key, value, _ := strings.Cut(pair, "=")
		texts[key] = value
	}
	maps.DeleteFunc(texts, func(key, _ string) bool { return settings.OfCDK(key) })
	return texts, nil
}

// contextOf returns the context in a file of the CDK CLI, and nil if there is no file.
func contextOf(path string) (map[string]json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file struct {
		Context map[string]json.RawMessage `json:"context"`
	}
	switch {
	case err != nil:
	case filepath.Base(path) == "cdk.context.json": // it has nothing else
		err = json.Unmarshal(text, &file.Context)
	default:
		err = json.Unmarshal(text, &file)
	}
	return file.Context, err
}
