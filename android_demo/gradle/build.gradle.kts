plugins {
    alias(libs.plugins.android.application) apply false
    alias(libs.plugins.kotlin.jvm) apply false
}

subprojects {
    // Beside what Maven builds, and never among the sources.
    layout.buildDirectory = rootDir.resolve("../build/gradle/$name")
}
