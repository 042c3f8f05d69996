package payhook

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/regioninfo"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// ReadSettings returns the props of the construct and of its stack, for an app whose settings are not in its code: of
// the file settings.json in the folder, with env=NAME in the context also of environments/NAME.json, and of the context
// of the app, which is -c on the command line. The last one that sets a setting counts. [New] checks them, and reports
// keys that are no setting. Fields that the caller sets replace them.
//
// The files have JSON objects. An environment has account and region as well, for the stack. The CDK CLI refuses to
// deploy with credentials of another account. Otherwise account and Region are those of the credentials, if they are
// known, so that New can report what they do not have.
func ReadSettings(app constructs.Construct, folder string) (*Props, *awscdk.StackProps, error) {
	context := map[string]string{}
	all, _ := app.Node().GetAllContext(nil).(map[string]any)
	for key, value := range all {
		if value == nil || ofCDK(key) {
			continue
		}
		text, err := settings.Text(value)
		if err != nil {
			return nil, nil, fmt.Errorf("%s in the context: %w", key, err)
		}
		context[key] = text
	}
	common := filepath.Join(folder, "settings.json")
	texts, err := settings.ReadFile(common)
	if err != nil {
		return nil, nil, err
	}
	given, stack := settings.Texts(texts, common), &awscdk.StackProps{Env: &awscdk.Environment{}}
	// AWS, https://docs.aws.amazon.com/cdk/v2/guide/configure-env.html. The emulator is in no Region.
	region, account := os.Getenv("CDK_DEFAULT_REGION"), os.Getenv("CDK_DEFAULT_ACCOUNT")
	if !isLocal(app) && region != "" && account != "" {
		stack.Env.Region, stack.Env.Account = &region, &account
	}
	if name := context["env"]; name != "" {
		of, err := readEnvironment(filepath.Join(folder, "environments"), name, stack.Env)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(given, of)
		delete(context, "env")
	}
	maps.Copy(given, settings.Texts(context, "-c or cdk.json"))
	stack.StackName = jsii.String(settings.StackName(given["stackName"].Text))
	return &Props{given: given}, stack, nil
}

// readEnvironment returns the settings of the environment with a name, and sets its account and Region.
func readEnvironment(folder, name string, env *awscdk.Environment) (map[string]settings.Value, error) {
	file := filepath.Join(folder, name+".json")
	if _, err := os.Stat(file); err != nil || filepath.Base(name) != name {
		files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		for i, file := range files {
			files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
		}
		return nil, fmt.Errorf("there is no environment %q; %s has: %s", name, folder, strings.Join(files, ", "))
	}
	texts, err := settings.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if account, ok := texts["account"]; ok {
		if !regexp.MustCompile(`^\d{12}$`).MatchString(account) {
			return nil, fmt.Errorf("%s: account=%s: must be the 12 digits of an account", file, account)
		}
		env.Account = &account
	}
	if region, ok := texts["region"]; ok {
		if !slices.ContainsFunc(*regioninfo.RegionInfo_Regions(), func(r regioninfo.RegionInfo) bool {
			return *r.Name() == region
		}) {
			return nil, fmt.Errorf("%s: region=%s: the CDK knows no such Region", file, region)
		}
		env.Region = &region
	}
	delete(texts, "account")
	delete(texts, "region")
	return settings.Texts(texts, file), nil
}

// ofCDK reports whether a context key is one of the CDK: feature flags (@aws-cdk/…), lookups (availability-zones:…),
// information about the invocation (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. That of a local
// run (payhook:local) is no setting for users either.
func ofCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// isLocal reports whether the context says that the deployment is for an emulator on this machine.
func isLocal(scope constructs.Construct) bool {
	return fmt.Sprint(scope.Node().TryGetContext(jsii.String(settings.LocalKey))) == "true"
}
