package payhook

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

// someSubnets are settings that put the functions into subnets.
var someSubnets = map[string]any{"subnetIds": "subnet-01234567;subnet-0123456789abcdef0",
	"securityGroupIds": "sg-0123456789abcdef0"}

// All functions are in the subnets, whose ids can be known at the deployment. Lambda manages their network interfaces
// with their roles, and their code cannot.
func TestFunctionsAreInTheSubnetsOfTheUser(t *testing.T) {
	app := newApp(t, required)
	stack, props := newStack(t, app, "nowhere")
	vpc := awsec2.NewVpc(stack, jsii.String("Network"), nil)
	for _, subnet := range *vpc.PrivateSubnets() {
		props.SubnetIDs = append(props.SubnetIDs, *subnet.SubnetId())
	}
	props.SecurityGroupIDs = []string{*awsec2.NewSecurityGroup(stack, jsii.String("Group"),
		&awsec2.SecurityGroupProps{Vpc: vpc}).SecurityGroupId()}
	create(stack, jsii.String("Default"), props, programs(""))
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	of := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
	want := map[string]any{"SecurityGroupIds": []any{"Payhook/Group.GroupId"},
		"SubnetIds": []any{"Payhook/Network/PrivateSubnet1/Subnet", "Payhook/Network/PrivateSubnet2/Subnet"}}
	condition := map[string]any{"Null": map[string]any{"lambda:SourceFunctionArn": "true"}}
	for function, path := range functions {
		got := of.plain(of.get(t, path, "AWS::Lambda::Function").Properties["VpcConfig"])
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", function, diff)
		}
		for _, s := range of.statements(t, strings.Replace(path, "Function", "Role", 1)) {
			if diff := cmp.Diff(any(condition), s["Condition"]); of.render(s["Resource"]) == "*" && diff != "" {
				t.Errorf("%s: %v (-want +got)\n%s", function, s, diff)
			}
		}
	}
}
