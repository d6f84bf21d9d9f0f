import java.security.MessageDigest
import java.time.LocalDate
import javax.inject.Inject

plugins {
    // Brings Kotlin's compiler, of the version that the root project names.
    alias(libs.plugins.android.application)
}

android {
    namespace = "dev.edgedec.demo"
    compileSdk = libs.versions.targetSdk.get().toInt()

    defaultConfig {
        applicationId = "dev.edgedec.demo"
        minSdk = libs.versions.minSdk.get().toInt()
        targetSdk = libs.versions.targetSdk.get().toInt()
        versionCode = libs.versions.versionCode.get().toInt()
        versionName = libs.versions.demo.get()
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }

    // What is stored is copied without inflating it, and libraries load from the APK.
    androidResources { noCompress += listOf("onnx", "data", "json") }
    packaging { jniLibs { useLegacyPackaging = false } }

    // Takes out again what the AAR's manifest brings.
    for (type in listOf("debug", "release")) {
        sourceSets.getByName(type).manifest.srcFile("../gradle/without-telemetry.xml")
    }
}

dependencies {
    implementation(project(":core"))
    implementation(libs.onnxruntime.android)
}

/** Copies the bundle to where the app looks for it among its assets. */
abstract class CopyBundle : DefaultTask() {
    @get:InputDirectory
    abstract val bundle: DirectoryProperty

    @get:OutputDirectory
    abstract val assets: DirectoryProperty

    @get:Inject
    abstract val files: FileSystemOperations

    @TaskAction
    fun copy() {
        files.sync {
            from(bundle) { exclude(".*") }
            into(assets.dir("demo"))
        }
    }
}

val copyBundle = tasks.register<CopyBundle>("copyBundle") {
    bundle = rootDir.resolve("../../models/demo/bundle")
}

androidComponents {
    onVariants { variant ->
        variant.sources.assets?.addGeneratedSourceDirectory(copyBundle, CopyBundle::assets)
    }
}

/** Notes that these build files have built the app: the plug-in's version, the date, their hash. */
abstract class StampVerified : DefaultTask() {
    @get:InputFiles
    abstract val buildFiles: ConfigurableFileCollection

    @get:Input
    abstract val plugin: Property<String>

    @get:OutputFile
    abstract val stamp: RegularFileProperty

    @TaskAction
    fun stamp() {
        val digest = MessageDigest.getInstance("SHA-256")
        for (file in buildFiles.files.sortedBy { it.name }) {
            val text = file.readText().replace("\r\n", "\n")
            digest.update("${file.name}\n$text\n".toByteArray())
        }
        val hash = digest.digest().joinToString("") { "%02x".format(it) }
        stamp.get().asFile.writeText("agp ${plugin.get()}\ndate ${LocalDate.now()}\nsha256 $hash\n")
    }
}

tasks.register<StampVerified>("stampVerified") {
    dependsOn("assembleDebug")
    buildFiles.from(fileTree(rootDir) { include("*.kts", "*.toml", "*.xml", "*.properties") })
    plugin = libs.versions.agp
    stamp = rootDir.resolve("VERIFIED")
    // The date is today's, whatever was stamped before.
    outputs.upToDateWhen { false }
}
