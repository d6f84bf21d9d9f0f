// For people with an Android SDK: the sources of ../core and ../app, which Maven builds without one.
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositoriesMode = RepositoriesMode.FAIL_ON_PROJECT_REPOS
    repositories {
        google()
        mavenCentral()
    }
    versionCatalogs {
        create("libs") { from(files("libs.versions.toml")) }
    }
}

rootProject.name = "edgedec-demo"

// The folders of the sources are the projects' folders, so that no source folder is named here.
include(":core", ":app")
for (name in listOf("core", "app")) {
    project(":$name").projectDir = file("../$name")
    project(":$name").buildFileName = "../gradle/$name.gradle.kts"
}
