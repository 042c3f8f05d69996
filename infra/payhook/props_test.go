package payhook

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/settings"
)

// emptyStack returns a stack of its own app.
func emptyStack(t *testing.T, name string, context ...map[string]any) awscdk.Stack {
	t.Helper()
	return awscdk.NewStack(newApp(t, context...), jsii.String(name), nil)
}

// Each case lists the settings that it changes, and all problems.
func TestProblemsNameTheirOrigin(t *testing.T) {
	given := Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c"}
	for name, c := range map[string]struct {
		context map[string]any // nil: the props are not of the context
		change  func(scope constructs.Construct, p *Props)
		want    []string
	}{
		"no field": {nil, func(_ constructs.Construct, p *Props) { *p = Props{} },
			[]string{"BaseURL: is required", "AuthURL: is required", "TokenManagerID: is required"}},
		"a field beside the context": {map[string]any{"successStatus": 100, "keyEndpointAuth": "x"},
			func(_ constructs.Construct, p *Props) { p.SuccessStatus = 99 },
			[]string{"SuccessStatus=99: must be a status", "keyEndpointAuth=x (-c or cdk.json): must be"}},
		"two buses": {nil, func(scope constructs.Construct, p *Props) {
			p.Bus, p.EventBusName = awsevents.NewEventBus(scope, jsii.String("Bus"), nil), "payments"
		}, []string{"Bus: must not be set together with EventBusName"}},
		"a bus and a key": {map[string]any{"eventBusName": "payments"}, func(scope constructs.Construct, p *Props) {
			p.Bus = awsevents.NewEventBus(scope, jsii.String("Bus"), nil)
		}, []string{"Bus: must not be set together with eventBusName"}},
		"two keys": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey, p.Encryption = awskms.NewKey(scope, jsii.String("Key"), nil), settings.EncryptionCMK
		}, []string{"EncryptionKey: must not be set together with Encryption"}},
		"an alias": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey = awskms.Key_FromKeyArn(scope, jsii.String("Key"),
				jsii.String("arn:aws:kms:eu-central-1:111122223333:key/a/b"))
		}, []string{`Encryption="arn:aws:kms:eu-central-1:111122223333:key/a/b": must be aws, cmk, or`}},
		"an alias in the app": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey = awskms.NewKey(scope, jsii.String("Key"), nil).AddAlias(jsii.String("alias/payments"))
		}, []string{"EncryptionKey: must be a key, not an alias"}},
	} {
		t.Run(name, func(t *testing.T) {
			stack, p := emptyStack(t, "Payhook", c.context), given
			if c.context != nil {
				props, _, err := ReadSettings(stack, "nowhere")
				if err != nil {
					t.Fatal(err)
				}
				fields := p.Settings
				p = *props
				p.BaseURL, p.AuthURL, p.TokenManagerID = fields.BaseURL, fields.AuthURL, fields.TokenManagerID
			}
			c.change(stack, &p)
			_, err := p.resolve(stack)
			if err == nil {
				t.Fatal("no problem")
			}
			var got []string
			for line := range strings.Lines(err.Error()) {
				if problem, ok := strings.CutPrefix(line, "  "); ok {
					got = append(got, problem)
				}
			}
			for i, want := range c.want {
				if len(got) != len(c.want) || !strings.HasPrefix(got[i], want) {
					t.Fatalf("got %q, want %q", got, c.want)
				}
			}
			if strings.Contains(err.Error(), "settings.json") != (c.context != nil) {
				t.Errorf("the hint is wrong: %v", err)
			}
		})
	}
}

func TestExistingPartsMustBeWhereTheStackIs(t *testing.T) {
	app := newApp(t)
	stack := awscdk.NewStack(app, jsii.String("Payhook"), &awscdk.StackProps{Env: &awscdk.Environment{
		Account: jsii.String("444455556666"), Region: jsii.String("us-gov-west-1")}})
	elsewhere := awscdk.NewStack(app, jsii.String("Elsewhere"), &awscdk.StackProps{
		Env: &awscdk.Environment{Account: jsii.String("444455556666"), Region: jsii.String("us-gov-east-1")}})
	_, err := (&Props{Bus: awsevents.EventBus_FromEventBusArn(stack, jsii.String("Bus"), jsii.String(busARN+"a")),
		AlarmTopic: awssns.NewTopic(elsewhere, jsii.String("Topic"), nil),
		OwnershipCertificate: awscertificatemanager.Certificate_FromCertificateArn(stack, jsii.String("Certificate"),
			jsii.String(someCertificate))}).resolve(stack)
	for _, want := range []string{"DomainName: is required in us-gov-west-1",
		"AlarmTopic: must be in the Region us-gov-west-1 of the stack, not in us-gov-east-1",
		"Bus: must be in the Region us-gov-west-1", "Bus: must be in the account 444455556666",
		"OwnershipCertificate: must be in the Region us-gov-west-1", "OwnershipCertificate: has no effect without"} {
		if err == nil || !strings.Contains(err.Error(), "\n  "+want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	for i, c := range []struct {
		scope constructs.Construct
		arn   string
	}{
		{stack, "arn:aws-us-gov:sns:us-gov-west-1:111122223333:alarms"}, // of another account
		{stack, *awscdk.Fn_ImportValue(jsii.String("Topic"))},
		{emptyStack(t, "Anywhere"), "arn:aws:sns:eu-west-1:111122223333:alarms"},
	} {
		topic := awssns.Topic_FromTopicArn(c.scope, jsii.String(fmt.Sprint("Topic", i)), &c.arn)
		if _, err := (&Props{AlarmTopic: topic}).resolve(c.scope); strings.Contains(fmt.Sprint(err), "AlarmTopic") {
			t.Error(err)
		}
	}
}

// The names and ARNs of resources in the app are known at deployment.
func TestExistingPartsCanBeTokens(t *testing.T) {
	stack := emptyStack(t, "Payhook")
	domain, zoneName := jsii.String("hook.bank.example"), jsii.String("bank.example")
	zone := awsroute53.NewPublicHostedZone(stack, jsii.String("Zone"),
		&awsroute53.PublicHostedZoneProps{ZoneName: zoneName})
	p := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c", DomainName: *domain,
		Bus: awsevents.NewEventBus(stack, jsii.String("Bus"), nil), HostedZoneID: *zone.HostedZoneId(),
		CertificateARN: *awscertificatemanager.NewCertificate(stack, jsii.String("Certificate"),
			&awscertificatemanager.CertificateProps{DomainName: domain}).CertificateArn(),
		EncryptionKey: awskms.NewKey(stack, jsii.String("Key"), nil)}
	vpc := awsec2.NewVpc(stack, jsii.String("Network"), nil)
	for _, subnet := range *vpc.PrivateSubnets() {
		p.SubnetIDs = append(p.SubnetIDs, *subnet.SubnetId())
	}
	p.SecurityGroupIDs = []string{*awsec2.NewSecurityGroup(stack, jsii.String("Group"),
		&awsec2.SecurityGroupProps{Vpc: vpc}).SecurityGroupId()}
	conf, err := p.resolve(stack)
	if err != nil {
		t.Fatal(err)
	}
	if conf.EventBusName != *p.Bus.EventBusName() ||
		conf.HostedZoneID != p.HostedZoneID || conf.Encryption != *p.EncryptionKey.KeyArn() ||
		conf.CertificateARN != p.CertificateARN || len(conf.SubnetIDs) < 2 || *conf.ProtectBus {
		t.Errorf("%+v", conf)
	}
	p.Bus = awsevents.EventBus_FromEventBusName(stack, jsii.String("Default bus"), jsii.String("default"))
	p.ProtectBus = jsii.Bool(true)
	if conf, err = p.resolve(stack); err != nil || conf.EventBusName != "default" || !*conf.ProtectBus {
		t.Errorf("%+v, %v", conf, err)
	}
}

func TestDeploymentsHaveDifferentNames(t *testing.T) {
	stack := emptyStack(t, "Bank")
	nested := awscdk.NewNestedStack(stack, jsii.String("Nested"), nil)
	part := constructs.NewConstruct(stack, jsii.String("Part A"))
	var got []string
	for _, scope := range []constructs.Construct{stack, part, nested} {
		for _, id := range []string{"Default", "Payments"} {
			child := constructs.NewConstruct(scope, jsii.String(id))
			p := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c"}
			conf, err := p.resolve(child)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, conf.StackName()+" "+conf.EventBusName)
		}
	}
	if want := []string{"Bank Bank", "Bank_Payments Bank_Payments", "Bank_PartA Bank_PartA",
		"Bank_PartAPayments Bank_PartAPayments", "Bank_Nested Bank_Nested",
		"Bank_NestedPayments Bank_NestedPayments"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The shell of somebody who has not evaluated the environment of the local run has the account of the user.
func TestALocalRunIsNotDeployedToAnAccount(t *testing.T) {
	for account, want := range map[string]string{"": "", settings.LocalAccount: "",
		"123456789012": "payhook:local: is for the local run, but the credentials are of account 123456789012"} {
		t.Setenv("CDK_DEFAULT_ACCOUNT", account)
		if _, err := parse(t, required, local); (err != nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", account, err)
		}
	}
}

// The example of a file for an environment is one that can be deployed.
func TestTheExampleOfAnEnvironmentIsSynthesized(t *testing.T) {
	app := newApp(t, map[string]any{"env": "staging"})
	stack, props := newStack(t, app, "..")
	create(stack, jsii.String("Default"), props, programs(""))
	if *stack.StackName() != "PayhookStaging" || *stack.Region() != "eu-central-1" ||
		*stack.Account() != "111122223333" || !*stack.TerminationProtection() {
		t.Error(*stack.StackName(), *stack.Region(), *stack.Account(), *stack.TerminationProtection())
	}
	if err := synthesize(app); err != nil {
		t.Error(err)
	}
}

// The command line replaces an environment, which replaces the file of all environments.
func TestSettingsAreReadFromThreePlaces(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"settings.json": `{"scopes": "all", "keyEndpointAuth": "bearer", "successStatus": 201, "stackName": "All"}`,
		"environments/one.json": `{"scopes": "one", "successStatus": 202, "evidence": 1,
			"allowedNetworks": ["192.0.2.0/24", "::/0"]}`,
		"environments/list.json": `[]`, "environments/region.json": `{"region": "eu-centrl-1"}`,
		"environments/account.json": `{"account": "1111-2222-3333"}`} {
		writeFile(t, filepath.Join(folder, name), text)
	}
	for env, want := range map[string]string{"": "all bearer 203 []", "one": "one bearer 203 [192.0.2.0/24 ::/0]"} {
		stack, props := newStack(t, newApp(t, map[string]any{"env": env, "successStatus": "203"}), folder)
		s, _ := props.Parse(settings.Stack{})
		got := fmt.Sprintf("%s %s %d %s", s.Scopes, s.KeyEndpointAuth, s.SuccessStatus, s.AllowedNetworks)
		if got != want || *stack.StackName() != "All" {
			t.Errorf("%q: %s in %s, want %s", env, got, *stack.StackName(), want)
		}
	}
	_, props := newStack(t, newApp(t, map[string]any{"env": "one"}), folder)
	_, err := props.Parse(settings.Stack{})
	if want := "evidence=1 (" + folder + "/environments/one.json): "; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("no %q in %v", want, err)
	}
	for name, want := range map[string]string{
		"two":  `no environment "two"; ` + folder + "/environments has: account, list, one, region",
		"../x": "no environment", "list": "unmarshal JSON array",
		"region":  "region.json: region=eu-centrl-1: the CDK knows no such Region",
		"account": "account.json: account=1111-2222-3333: must be the 12 digits"} {
		if _, _, err := ReadSettings(newApp(t, map[string]any{"env": name}), folder); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("CDK_DEFAULT_ACCOUNT", "111122223333")
	t.Setenv("CDK_DEFAULT_REGION", "me-central-1")
	if stack, _ := newStack(t, newApp(t), folder); *stack.Account() != "111122223333" ||
		*stack.Region() != "me-central-1" {
		t.Error(*stack.Account(), *stack.Region())
	}
}

// The functions are built with the FIPS module and ask for FIPS endpoints, where the Region is known to have them.
func TestFIPSIsInTheBuildAndTheEnvironmentOfEachFunction(t *testing.T) {
	for region, ok := range map[string]bool{"us-east-1": true, "eu-central-1": false, "": false} {
		for _, fips := range []bool{false, true} {
			app, built := newApp(t), []bool(nil)
			env := &awscdk.Environment{Account: jsii.String("111122223333"), Region: &region}
			if region == "" {
				env = nil
			}
			stack := awscdk.NewStack(app, jsii.String("Payhook"), &awscdk.StackProps{Env: env})
			p := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c", UseFIPS: &fips}
			if _, err := p.resolve(stack); (err == nil) != (ok || !fips) ||
				err != nil && !strings.Contains(err.Error(), "UseFIPS=true: must be false in ") {
				t.Errorf("%q, %t: %v", region, fips, err)
			}
			if !ok {
				continue
			}
			create(stack, jsii.String("Default"), p, func(arch string, fips bool) (map[string][]byte, error) {
				built = append(built, fips)
				return programs("")(arch, fips)
			})
			if err := synthesize(app); err != nil {
				t.Fatal(err)
			}
			tm := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
			for _, path := range functions {
				properties := tm.get(t, path, "AWS::Lambda::Function").Properties
				got := at(properties, "Environment", "Variables", "PAYHOOK_FIPS")
				if fips != (got == "true") || !slices.Equal(built, []bool{fips}) {
					t.Errorf("%q: %s: PAYHOOK_FIPS=%v, built with %v, want %t", region, path, got, built, fips)
				}
			}
		}
	}
}

// The two stacks of the section "Two Regions" of RUNBOOK.md differ only in Region and certificate.
func TestTwoRegionsDifferOnlyInRegionAndCertificate(t *testing.T) {
	folder, texts := t.TempDir(), map[string]string{}
	for _, region := range []string{"eu-central-1", "eu-west-1"} {
		certificate := strings.Replace(someCertificate, "eu-central-1", region, 1)
		writeFile(t, filepath.Join(folder, "environments", region+".json"), fmt.Sprintf(
			`{"account": "111122223333", "region": %q, "certificateArn": %q}`, region, certificate))
		app := newApp(t, required, map[string]any{"env": region, "domainName": "hook.bank.example"})
		stack, props := newStack(t, app, folder)
		create(stack, jsii.String("Default"), props, programs("x"))
		made := app.Synth(nil).GetStackByName(stack.StackName())
		text := toJSON(made.Template())
		if !strings.Contains(text, certificate) || *made.Environment().Region != region {
			t.Errorf("%s: another Region or certificate", region)
		}
		// The name of a version has a digest of the function, which names a bucket in the Region.
		text = regexp.MustCompile(`(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}`).ReplaceAllString(text, "$1")
		texts[region] = strings.ReplaceAll(text, region, "REGION")
	}
	if diff := cmp.Diff(texts["eu-central-1"], texts["eu-west-1"]); diff != "" {
		t.Error(diff)
	}
}
