package payhook

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// environmentKey is the context key of the name of an environment: cdk deploy -c env=staging.
const environmentKey = "env"

// Environment returns the account and Region for the stack: those of the credentials of the CDK CLI, if they are
// known. So [New] can report what they do not have.
//
// If the context of app has env=NAME, it reads the file NAME.json in a folder: a JSON object with settings, which
// replace those of cdk.json, and with account and region, for the stack. The CDK CLI refuses to deploy with credentials
// of another account. What -c sets on the command line replaces the settings of the file.
func Environment(app constructs.Construct, folder string) (*awscdk.Environment, error) {
	env := &awscdk.Environment{}
	// AWS, https://docs.aws.amazon.com/cdk/v2/guide/configure-env.html. The emulator is in no Region.
	region, account := os.Getenv("CDK_DEFAULT_REGION"), os.Getenv("CDK_DEFAULT_ACCOUNT")
	if contextText(app, settings.LocalKey) != "true" && region != "" && account != "" {
		env.Region, env.Account = &region, &account
	}
	name := contextText(app, environmentKey)
	if name == "" {
		return env, nil
	}
	text, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if err != nil || filepath.Base(name) != name {
		files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		for i, file := range files {
			files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
		}
		return nil, fmt.Errorf("there is no environment %q; %s has: %s", name, folder, strings.Join(files, ", "))
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s/%s.json: must be a JSON object: %w", folder, name, err)
	}
	ofApp, err := settings.ReadContext("cdk.json")
	if err != nil {
		return nil, err
	}
	for key, value := range file {
		switch key {
		case "account":
			env.Account = jsii.String(settings.Text(value))
		case "region":
			env.Region = jsii.String(settings.Text(value))
		default:
			given := contextText(app, key)
			if given == "" || given == ofApp[key] { // not from the command line
				app.Node().SetContext(jsii.String(key), value)
			}
		}
	}
	return env, nil
}
