// Checks CloudFormation templates with the AwsSolutions pack of cdk-nag. Arguments
// are the files of templates in JSON. It prints a JSON object with the findings of
// each file: the logical id of the resource and the rule, separated by a space.
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { App, Aspects, Stack } = require("aws-cdk-lib");
const { CfnInclude } = require("aws-cdk-lib/cloudformation-include");
const { AwsSolutionsChecks } = require("cdk-nag");

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "nag-"));
const findings = {};
for (const file of process.argv.slice(2)) {
  // The stack around the template has these already.
  const { Parameters, Rules, ...template } = JSON.parse(fs.readFileSync(file));
  const included = path.join(folder, path.basename(file));
  fs.writeFileSync(included, JSON.stringify(template));
  const app = new App({ outdir: included + ".out" });
  const stack = new Stack(app, "Stack");
  new CfnInclude(stack, "Template", { templateFile: included });
  Aspects.of(app).add(new AwsSolutionsChecks());
  findings[file] = app.synth().getStackArtifact(stack.artifactId).messages
    .map((message) => [message.id.split("/").pop(), String(message.entry.data).match(/^(\S+?)[[:]/)?.[1]])
    // Other messages are warnings of the CDK.
    .filter(([, rule]) => rule?.startsWith("AwsSolutions-") || rule?.startsWith("CdkNag"))
    .map(([id, rule]) => `${id} ${rule}`);
}
fs.rmSync(folder, { recursive: true });
process.stdout.write(JSON.stringify(findings));
