package payhook

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/regioninfo"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// Props are the settings of a stack, and the parts of it that exist already. The fields of Settings are fields of
// Props, also in a literal: Props{BaseURL: "https://api.payments.example"}. The zero value of a field is its default.
// BaseURL, AuthURL and TokenManagerID are required. [New] reports all problems together.
//
// Strings and the elements of lists must be literals, except the ARNs of certificates and keys, and the ids of the
// hosted zone, subnets and security groups, which can be tokens of the CDK. No element of a list is blank.
type Props struct {
	settings.Settings

	// Bus is an existing bus for the events, in place of EventBusName, in the account and Region of the
	// stack. Its policy is changed only if ProtectBus is true. Nil: a bus is created.
	Bus awsevents.IEventBus
	// AlarmTopic is an existing topic in the Region of the stack that every alarm notifies. Nil: a topic is created.
	AlarmTopic awssns.ITopic
	// EncryptionKey is an existing key, not an alias, in the account and Region of the stack, in place of Encryption.
	EncryptionKey awskms.IKey

	// OwnershipCertificate is a public certificate of DomainName. Client certificates need it if CertificateARN was
	// imported or issued by a private CA.
	OwnershipCertificate awscertificatemanager.ICertificate

	hint string // how to change the settings of ReadSettings
}

// Durations with a meaning, for the fields whose limits have that word.
const (
	Off   = settings.Off
	Never = settings.Never
)

// resolve checks the props and returns the settings of the stack in scope. Its error lists all problems. Nil props are
// those without a field.
func (p *Props) resolve(scope constructs.Construct) (settings.Settings, error) {
	if p == nil {
		p = &Props{}
	}
	stack, given := awscdk.Stack_Of(scope), p.Settings
	where := settings.Stack{Name: stackName(scope), Local: isLocal(scope),
		Account: known(stack.Account()), Region: known(stack.Region())}
	problems := []error{checkAccount(where)}
	problem := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	place := func(field string, region, account *string) {
		for _, text := range where.Misplaced(*region, *account) {
			problem(field, "%s", text)
		}
	}
	alone := func(field, key string) {
		if other := given.Given(key); other != "" {
			problem(field, "must not be set together with %s", other)
		}
	}
	if p.AlarmTopic != nil { // PutMetricAlarm rejects one of another Region ("Invalid region specified")
		place("AlarmTopic", p.AlarmTopic.Env().Region, stack.Account())
	}
	if p.OwnershipCertificate != nil {
		arn := stack.SplitArn(p.OwnershipCertificate.CertificateArn(), awscdk.ArnFormat_SLASH_RESOURCE_NAME)
		place("OwnershipCertificate", arn.Region, arn.Account)
		if given.Given("domainName") == "" {
			problem("OwnershipCertificate", "has no effect without DomainName")
		}
	}
	if p.EncryptionKey != nil {
		alone("EncryptionKey", "encryption")
		if _, alias := p.EncryptionKey.(awskms.IAlias); alias { // permissions name keys
			problem("EncryptionKey", "must be a key, not an alias")
		}
		given.Encryption = *p.EncryptionKey.KeyArn()
	}
	if p.Bus != nil {
		alone("Bus", "eventBusName")
		place("Bus", p.Bus.Env().Region, p.Bus.Env().Account)
		if given.Given("protectBus") == "" {
			given.ProtectBus = jsii.Bool(false)
		}
	}
	conf, err := given.Parse(where)
	if p.Bus != nil {
		conf.EventBusName = *p.Bus.EventBusName() // also default, or a token
	}
	if err = errors.Join(append(problems, err)...); err != nil {
		return conf, fmt.Errorf("payhook: nothing was synthesized because of these settings of %s:\n\n  %s%s",
			*scope.Node().Path(), strings.ReplaceAll(err.Error(), "\n", "\n  "), p.hint)
	}
	return conf, nil
}

// known returns an account or Region, and "" if it is known only in the deployment.
func known(part *string) string {
	if *awscdk.Token_IsUnresolved(part) {
		return ""
	}
	return *part
}

// checkAccount returns an error if a local run would be deployed to AWS, as in a shell without the environment of the
// local run. The CDK CLI sets the variable to the account of its credentials:
// https://docs.aws.amazon.com/cdk/v2/guide/configure-env.html
func checkAccount(stack settings.Stack) error {
	account := os.Getenv("CDK_DEFAULT_ACCOUNT")
	if !stack.Local || account == "" || account == settings.LocalAccount {
		return nil
	}
	return fmt.Errorf("%s: is for the local run, but the credentials are of account %s: eval \"$(payhook local env)\" "+
		"in this shell", settings.LocalKey, account)
}

// stackName returns the name by which the settings know the construct, which differs from all others in
// the account and Region: that of its stack, followed by the id of the construct in it unless
// that is Default. The name of a stack has no underscore.
func stackName(scope constructs.Construct) string {
	stack := topStack(scope)
	if id := idIn(stack, scope); id != "" {
		return *stack.StackName() + "_" + id
	}
	return *stack.StackName()
}

// topStack returns the stack of a construct that is not nested. The name of a nested stack is a
// token, and begins with that of the stack that contains it.
func topStack(scope constructs.Construct) awscdk.Stack {
	stack := awscdk.Stack_Of(scope)
	for stack.NestedStackParent() != nil {
		stack = stack.NestedStackParent()
	}
	return stack
}

// idIn returns the letters and digits of the path of a construct below a stack, without
// Default, which is no part of logical ids either.
func idIn(stack awscdk.Stack, c constructs.Construct) string {
	path := strings.Split(strings.TrimPrefix(*c.Node().Path(), *stack.Node().Path()), "/")
	path = slices.DeleteFunc(path, func(id string) bool { return id == "Default" })
	return lettersAndDigits(strings.Join(path, ""))
}

// lettersAndDigits returns a text without other characters.
func lettersAndDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, text)
}

// ReadSettings returns the props of the construct and of its stack, for an app whose settings are not in its code: of
// the file settings.json in the folder, with env=NAME in the context also of environments/NAME.json, and of the context
// of the app, which is -c on the command line. The last one that sets a setting counts. [New] checks them, and reports
// keys that are no setting. Fields that the caller sets replace them. The stack has termination protection, unless it
// is that of a local run.
//
// The files have JSON objects. An environment has account and region as well, for the stack. The CDK CLI refuses to
// deploy with credentials of another account. Otherwise account and Region are those of the credentials, if they are
// known, so that New can report what they do not have.
func ReadSettings(app constructs.Construct, folder string) (*Props, *awscdk.StackProps, error) {
	all, _ := app.Node().GetAllContext(nil).(map[string]any)
	maps.DeleteFunc(all, func(key string, _ any) bool { return ofCDK(key) })
	context, err := settings.Texts(all)
	if err != nil {
		return nil, nil, fmt.Errorf("the context: %w", err)
	}
	common := filepath.Join(folder, "settings.json")
	texts, err := settings.ReadFile(common)
	if err != nil {
		return nil, nil, err
	}
	props := &Props{hint: "\n\nSet each with -c NAME=VALUE, or in " + common}
	props.Add(texts, common)
	// Termination protection prevents an accidental deletion of the stack and its URL.
	stack := &awscdk.StackProps{Env: &awscdk.Environment{}, TerminationProtection: jsii.Bool(!isLocal(app))}
	// AWS, https://docs.aws.amazon.com/cdk/v2/guide/configure-env.html. The emulator is in no Region.
	region, account := os.Getenv("CDK_DEFAULT_REGION"), os.Getenv("CDK_DEFAULT_ACCOUNT")
	if !isLocal(app) && region != "" && account != "" {
		stack.Env.Region, stack.Env.Account = &region, &account
	}
	if name := context["env"]; name != "" {
		if err := props.readEnvironment(filepath.Join(folder, "environments"), name, stack.Env); err != nil {
			return nil, nil, err
		}
		delete(context, "env")
	}
	props.Add(context, "-c or cdk.json")
	stack.StackName = jsii.String(props.StackName())
	return props, stack, nil
}

// readEnvironment adds the settings of the environment with a name, and sets its account and Region.
func (p *Props) readEnvironment(folder, name string, env *awscdk.Environment) error {
	file := filepath.Join(folder, name+".json")
	if _, err := os.Stat(file); err != nil || filepath.Base(name) != name {
		files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		for i, file := range files {
			files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
		}
		return fmt.Errorf("there is no environment %q; %s has: %s", name, folder, strings.Join(files, ", "))
	}
	texts, err := settings.ReadFile(file)
	if err != nil {
		return err
	}
	if account, ok := texts["account"]; ok {
		if !regexp.MustCompile(`^\d{12}$`).MatchString(account) {
			return fmt.Errorf("%s: account=%s: must be the 12 digits of an account", file, account)
		}
		env.Account = &account
	}
	if region, ok := texts["region"]; ok {
		if !slices.ContainsFunc(*regioninfo.RegionInfo_Regions(), func(r regioninfo.RegionInfo) bool {
			return *r.Name() == region
		}) {
			return fmt.Errorf("%s: region=%s: the CDK knows no such Region", file, region)
		}
		env.Region = &region
	}
	delete(texts, "account")
	delete(texts, "region")
	p.Add(texts, file)
	return nil
}

// ofCDK reports whether a context key is one of the CDK: feature flags (@aws-cdk/…), lookups (availability-zones:…),
// information about the invocation (aws:cdk:…), and two keys that its CLI writes into cdk.context.json. That of a local
// run (payhook:local) is no setting for users either.
func ofCDK(key string) bool {
	return strings.HasPrefix(key, "@") || strings.Contains(key, ":") ||
		key == "acknowledged-issue-numbers" || key == "cli-telemetry"
}

// isLocal reports whether the context says that the stack is for an emulator on this machine.
func isLocal(scope constructs.Construct) bool {
	return fmt.Sprint(scope.Node().TryGetContext(jsii.String(settings.LocalKey))) == "true"
}
