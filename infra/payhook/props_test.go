package payhook

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

var update = flag.Bool("update", false, "write the table of settings into infra/README.md")

// fieldComments returns the doc comments of the fields of Props, each in one line.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(gotoken.NewFileSet(), "props.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && len(field.Names) > 0 {
			docs[field.Names[0].Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
		}
		return true
	})
	return docs
}

// The table in infra/README.md has the doc comments of the fields. go test ./infra/payhook -run Document
// -update writes it.
func TestDocumentHasTheFieldOfEachSetting(t *testing.T) {
	docs, fields := fieldComments(t), map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Props]()) {
		key := field.Tag.Get("context")
		if key != "" && (fields[key] != "" || settings.ByKey(key) == nil) {
			t.Errorf("%s: %s is no setting or has two fields", field.Name, key)
		}
		fields[key] = field.Name
	}
	table := "| key | default | § | meaning |\n|---|---|---|---|\n"
	for _, s := range settings.All() {
		doc := docs[fields[s.Key]]
		if s == settings.StackName {
			doc = "StackName is the name of the app's stack; another one for each environment in an account and " +
				"Region. Default: " + s.Default + "."
		}
		table += row(t, s, doc)
	}
	path := filepath.Join("..", "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Index(string(text), "| key | default |")
	end := start + strings.Index(string(text[start:]), "\n\n") + 1
	if *update {
		if err := os.WriteFile(path, []byte(string(text[:start])+table+string(text[end:])), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text[start:end]) != table {
		t.Error("infra/README.md is not up to date: go test ./infra/payhook -run Document -update")
	}
}

// row returns the row of a setting, whose field has the doc comment.
func row(t *testing.T, s *settings.Setting, doc string) string {
	t.Helper()
	text, isDefault, ok := strings.Cut(strings.TrimSuffix(doc, "."), " Default: ")
	_, rest, _ := strings.Cut(strings.TrimSuffix(text, "."), " ")
	verb, meaning, _ := strings.Cut(rest, " ")
	if verb != "is" && verb != "are" || ok != (s.Default != "") || isDefault != s.Default {
		t.Errorf("%s: the doc comment is %q, the default %q", s.Key, doc, s.Default)
	}
	switch {
	case s.Required:
		isDefault = "required"
	case s.Default != "":
		isDefault = "`" + s.Default + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Key, isDefault, s.Section, meaning)
}

// emptyStack returns a stack of its own app.
func emptyStack(t *testing.T, name string, context ...map[string]any) awscdk.Stack {
	t.Helper()
	return awscdk.NewStack(newApp(t, context...), jsii.String(name), nil)
}

// complete returns props with a valid value, other than the default, for each setting but
// StackName, and the texts that the context has for the same.
func complete(t *testing.T, scope constructs.Construct) (*Props, map[string]any) {
	t.Helper()
	p, context := &Props{}, map[string]any{}
	fields := reflect.ValueOf(p).Elem()
	for i := range fields.NumField() {
		s, field := settings.ByKey(fields.Type().Field(i).Tag.Get("context")), fields.Field(i)
		if s == nil {
			continue
		}
		text := s.Example
		switch s {
		case settings.Truststore:
			text = truststores()[0]
		}
		context[s.Key] = text
		switch to := field.Addr().Interface().(type) {
		case *awscertificatemanager.ICertificate:
			*to = awscertificatemanager.Certificate_FromCertificateArn(scope, jsii.String(s.Key), &text)
		case *awsroute53.IHostedZone:
			*to = awsroute53.PublicHostedZone_FromPublicHostedZoneId(scope, jsii.String(s.Key), &text)
		case *awslogs.RetentionDays:
			*to = awslogs.RetentionDays_ONE_YEAR
		case **bool:
			*to = jsii.Bool(text == "true")
		case *bool:
			*to = text == "true"
		case *time.Duration:
			*to, _ = settings.ParseDuration(text)
		case *int:
			*to, _ = strconv.Atoi(text)
		case *[]int:
			*to = []int{3, 65537}
		case *[]string:
			*to = strings.Split(text, s.Separator)
		default:
			field.SetString(text)
		}
	}
	return p, context
}

func TestFieldsMeanWhatTheContextMeans(t *testing.T) {
	stack := emptyStack(t, "Payhook")
	p, context := complete(t, stack)
	fromFields, err := p.resolve(stack)
	if err != nil {
		t.Fatal(err)
	}
	inContext := emptyStack(t, "Payhook", context)
	fromContext, err := PropsFromContext(inContext).resolve(inContext)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.All() {
		got, want := fromFields.Value(s), fromContext.Value(s)
		if d, err := settings.ParseDuration(want); err == nil {
			want = durationText(d)
		}
		if got != want || s != settings.StackName && want == s.Default {
			t.Errorf("%s: the field means %q, the context %q, the default is %q", s.Key, got, want, s.Default)
		}
	}
}

func TestFieldsHaveWordsForNoValue(t *testing.T) {
	stack := emptyStack(t, "Payhook")
	p := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c",
		ArchiveRetention: Off, ClaimRetention: Never, TimestampTolerance: Off}
	conf, err := p.resolve(stack)
	if err != nil || conf.ArchiveRetention != 0 || conf.ClaimRetention != 0 || conf.Webhook.Window != nil {
		t.Errorf("%+v, %v", conf, err)
	}
}

// Each case lists the settings that it changes, and all problems.
func TestProblemsNameTheirOrigin(t *testing.T) {
	required := Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c"}
	for name, c := range map[string]struct {
		context map[string]any // nil: the props are not of the context
		change  func(scope constructs.Construct, p *Props)
		want    []string
	}{
		"no field": {nil, func(_ constructs.Construct, p *Props) { *p = Props{} },
			[]string{"BaseURL: is required", "AuthURL: is required", "TokenManagerID: is required"}},
		"no key": {map[string]any{"baseURL": "x"}, func(_ constructs.Construct, p *Props) {
			p.BaseURL, p.AuthURL, p.TokenManagerID = "", "", ""
		}, []string{"baseUrl: is required", "authUrl: is required", "tokenManagerId: is required",
			"baseURL: no such setting"}},
		"a field beside the context": {map[string]any{"successStatus": 100, "httpMethod": "x"},
			func(_ constructs.Construct, p *Props) { p.SuccessStatus = 99 },
			[]string{"httpMethod: must be", "SuccessStatus: must be a whole number"}},
		"fields that contradict": {nil,
			func(_ constructs.Construct, p *Props) { p.DeduplicationWindow = time.Minute },
			[]string{"DeduplicationWindow: must be at least 10m31s, which is twice TimestampTolerance plus " +
				"WebhookTimeout"}},
		"keys that contradict": {map[string]any{"authentication": "mtls"},
			func(constructs.Construct, *Props) {},
			[]string{"domainName: is required, as authentication", "truststore: is required"}},
		"a stack's name": {map[string]any{"stackName": "1"}, func(constructs.Construct, *Props) {},
			[]string{"stackName: must be letters"}},
		"a duration without meaning": {nil, func(_ constructs.Construct, p *Props) { p.KeyMaxAge = Off },
			[]string{"KeyMaxAge: must be a duration"}},
		"logs without end": {nil,
			func(_ constructs.Construct, p *Props) { p.LogRetention = awslogs.RetentionDays_INFINITE },
			[]string{"LogRetention: must be one of"}},
		"tokens": {nil, func(scope constructs.Construct, p *Props) {
			p.EventSource, p.Scopes = *awscdk.Fn_Ref(jsii.String("A")), []string{"a", *awscdk.Fn_Ref(jsii.String("B"))}
			list := awscdk.Fn_Split(jsii.String(","), awscdk.Fn_Ref(jsii.String("C")), nil)
			p.FurtherEncryptionKeys = []string{*(*list)[0]}
		}, []string{"Scopes: must be a literal", "EventSource: must be a literal",
			"FurtherEncryptionKeys: must be a literal"}},
		"elements that are no element": {nil, func(_ constructs.Construct, p *Props) {
			p.AllowedSources, p.ClientCertPins, p.Scopes = []string{""}, []string{"a", " "}, []string{"a", "b c"}
			p.RevokedKeys, p.FurtherEncryptionKeys = []string{"\t"}, []string{""}
			p.ClientCertSubjects = []string{"CN=a;CN=b"}
		}, []string{`AllowedSources: element 1, "", must be`, `ClientCertPins: element 2, " ", must be`,
			`ClientCertSubjects: element 1, "CN=a;CN=b", must be`, `RevokedKeys: element 1, "\t", must be`,
			`Scopes: element 2, "b c", must be`, `FurtherEncryptionKeys: element 1, "", must be`,
			"ClientCertPins: has no effect", "ClientCertSubjects: has no effect", "RevokedKeys: has no effect"}},
		"two buses": {nil, func(scope constructs.Construct, p *Props) {
			p.Bus, p.EventBusName = awsevents.NewEventBus(scope, jsii.String("Bus"), nil), "payments"
		}, []string{"Bus: must not be set together with EventBusName"}},
		"a bus and a key": {map[string]any{"eventBusName": "payments"}, func(scope constructs.Construct, p *Props) {
			p.Bus = awsevents.NewEventBus(scope, jsii.String("Bus"), nil)
		}, []string{"Bus: must not be set together with eventBusName"}},
		"two keys": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey, p.Encryption = awskms.NewKey(scope, jsii.String("Key"), nil), EncryptionCMK
		}, []string{"EncryptionKey: must not be set together with Encryption"}},
		"an alias": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey = awskms.Key_FromKeyArn(scope, jsii.String("Key"),
				jsii.String("arn:aws:kms:eu-central-1:111122223333:key/a/b"))
		}, []string{"EncryptionKey: must be aws, cmk, or the ARN of a key"}},
		"an alias of a key that is known later": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey = awskms.Alias_FromAliasName(scope, jsii.String("Alias"), jsii.String("alias/payments"))
		}, []string{"EncryptionKey: must be aws, cmk, or the ARN of a key"}},
		"an alias in the app": {nil, func(scope constructs.Construct, p *Props) {
			p.EncryptionKey = awskms.NewKey(scope, jsii.String("Key"), nil).AddAlias(jsii.String("alias/payments"))
		}, []string{"EncryptionKey: must be aws, cmk, or the ARN of a key"}},
		"a zone without a domain": {nil, func(scope constructs.Construct, p *Props) {
			p.HostedZone = awsroute53.NewPublicHostedZone(scope, jsii.String("Zone"),
				&awsroute53.PublicHostedZoneProps{ZoneName: jsii.String("bank.example")})
		}, []string{"HostedZone: needs DomainName"}},
	} {
		t.Run(name, func(t *testing.T) {
			stack, p := emptyStack(t, "Payhook", c.context), required
			if c.context != nil {
				p.context = PropsFromContext(stack).context
			}
			c.change(stack, &p)
			_, err := p.resolve(stack)
			if err == nil {
				t.Fatal("no problem")
			}
			got := strings.Split(err.(settingsError).problems.Error(), "\n")
			for i, want := range c.want {
				if len(got) != len(c.want) || !strings.HasPrefix(got[i], want) {
					t.Fatalf("got %q, want %q", got, c.want)
				}
			}
			if strings.Contains(err.Error(), "cdk.json") != (c.context != nil) {
				t.Errorf("the hint is wrong: %v", err)
			}
		})
	}
}

func TestExistingPartsMustBeWhereTheStackIs(t *testing.T) {
	stack := awscdk.NewStack(newApp(t), jsii.String("Payhook"), &awscdk.StackProps{Env: &awscdk.Environment{
		Account: jsii.String("444455556666"), Region: jsii.String("us-gov-west-1")}})
	_, err := (&Props{Bus: awsevents.EventBus_FromEventBusArn(stack, jsii.String("Bus"), jsii.String(busARN+"a"))}).
		resolve(stack)
	for _, want := range []string{"DomainName: is required in us-gov-west-1",
		"Bus: must be in the Region us-gov-west-1", "Bus: must be in the account 444455556666"} {
		if err == nil || !strings.Contains(err.Error(), "\n  "+want) {
			t.Errorf("no %q in %v", want, err)
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
		Bus: awsevents.NewEventBus(stack, jsii.String("Bus"), nil), HostedZone: zone,
		Certificate: awscertificatemanager.NewCertificate(stack, jsii.String("Certificate"),
			&awscertificatemanager.CertificateProps{DomainName: domain}),
		EncryptionKey: awskms.NewKey(stack, jsii.String("Key"), nil)}
	conf, err := p.resolve(stack)
	if err != nil {
		t.Fatal(err)
	}
	if conf.Webhook.EventBusName != *p.Bus.EventBusName() ||
		conf.Value(settings.EventBusName) != *p.Bus.EventBusName() ||
		conf.Endpoint.HostedZoneID != *zone.HostedZoneId() || conf.Encryption != *p.EncryptionKey.KeyArn() ||
		conf.Endpoint.CertificateARN != *p.Certificate.CertificateArn() ||
		conf.ProtectBus {
		t.Errorf("%+v", conf)
	}
	p.Bus = awsevents.EventBus_FromEventBusName(stack, jsii.String("Default bus"), jsii.String("default"))
	p.ProtectBus = jsii.Bool(true)
	if conf, err = p.resolve(stack); err != nil || conf.Webhook.EventBusName != "default" || !conf.ProtectBus {
		t.Errorf("%+v, %v", conf, err)
	}
}

func TestRetentionsOfLogsHaveTheirDays(t *testing.T) {
	stack := emptyStack(t, "Payhook")
	for retention, days := range retentionDays {
		logs := awslogs.NewLogGroup(stack, jsii.String(days), &awslogs.LogGroupProps{Retention: retention})
		if got := *logs.Node().DefaultChild().(awslogs.CfnLogGroup).RetentionInDays(); fmt.Sprint(got) != days {
			t.Errorf("%s: %s days, and %v for the CDK", retention, days, got)
		}
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
			got = append(got, conf.StackName+" "+conf.Webhook.EventBusName)
		}
	}
	if want := []string{"Bank bank", "Bank_Payments bank_Payments", "Bank_PartA bank_PartA",
		"Bank_PartAPayments bank_PartAPayments", "Bank_Nested bank_Nested",
		"Bank_NestedPayments bank_NestedPayments"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLocalRunsAreFaster(t *testing.T) {
	for local, want := range map[string]string{"true": "1s", "false": "30s"} {
		stack := emptyStack(t, "Payhook", required,
			map[string]any{settings.LocalKey: local, settings.RedriveGrace.Key: "1s"})
		conf, err := PropsFromContext(stack).resolve(stack)
		if err != nil || conf.Local != (local == "true") || conf.Webhook.RedriveGrace.String() != want {
			t.Errorf("%s: %+v, %v", local, conf, err)
		}
	}
}

func TestContextOfAStackReplacesThatOfTheApp(t *testing.T) {
	stack := emptyStack(t, "Payhook", required, map[string]any{"successStatus": 201, "httpMethod": "PUT"})
	stack.Node().SetContext(jsii.String("successStatus"), "204")
	conf, err := PropsFromContext(stack).resolve(stack)
	if err != nil || conf.Webhook.SuccessStatus != 204 || conf.Webhook.HTTPMethod != "PUT" {
		t.Errorf("%+v, %v", conf.Webhook, err)
	}
}
