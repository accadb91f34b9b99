// Package e2e runs the node and storage specs of Kubernetes' own end-to-end tests.
// The whole of these tests also has those of all clouds and storage drivers, which take ten times as long to build.
package e2e

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/testinit"
	"k8s.io/klog/v2"
	commontest "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/node"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
)

// The caller waits for the node, so the suite only sets what specs read.
var _ = ginkgo.SynchronizedBeforeSuite(func(context.Context) {
	commontest.CurrentSuite = commontest.E2E
}, func(context.Context) {
	framework.TestContext.IPFamily = "ipv4"
	framework.TestContext.CloudConfig.NumNodes = 1
})

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) {
	logs.InitLogs()
	defer logs.FlushLogs()
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Kubernetes e2e", suite, reporter)
}
