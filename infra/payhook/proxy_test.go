package payhook_test

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/payhook"
)

// The functions call AWS and the payment service through a proxy.
func ExampleNew_proxy() {
	stack := awscdk.NewStack(awscdk.NewApp(nil), jsii.String("Bank"), nil)
	hook := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
		BaseURL: "https://api.payments.example", AuthURL: "https://auth.payments.example", TokenManagerID: "manager-1",
	})
	for _, name := range []string{"Webhook", "Redrive", "Token"} {
		function := hook.Node().FindChild(&name).Node().FindChild(jsii.String("Function")).(awslambda.Function)
		function.AddEnvironment(jsii.String("HTTPS_PROXY"), jsii.String("http://proxy.bank.example:3128"), nil)
		fmt.Println(*function.Node().Path())
	}
	// Output:
	// Bank/Payments/Webhook/Function
	// Bank/Payments/Redrive/Function
	// Bank/Payments/Token/Function
}
