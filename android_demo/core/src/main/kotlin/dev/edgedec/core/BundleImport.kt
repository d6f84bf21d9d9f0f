package dev.edgedec.core

import java.io.File
import java.io.FileNotFoundException
import java.io.FileOutputStream
import java.io.IOException
import java.io.InputStream
import java.nio.file.Files
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.security.MessageDigest

/** Where a bundle is copied from, as a folder that somebody picked or the assets of an app. */
interface Source {
    /**
     * Opens a file by its path in the bundle, as `target/model.onnx`.
     *
     * @throws FileNotFoundException there is none
     */
    fun open(name: String): InputStream

    /** The bytes of a file, or null if they are not known before it is read. */
    fun size(name: String): Long? = null
}

/** An import was cancelled; nothing is left of it. */
class ImportCancelled : EdgedecException("the import was cancelled")

/**
 * Copies bundles into a folder of the app, each into a folder of its own named by its manifest's sha256.
 *
 * Only files that the manifest lists are copied, and hashed meanwhile. A bundle appears whole or not at all. One import
 * at a time.
 *
 * @param library the folder of all bundles; it is made if it is missing
 * @param freeBytes how much may be written there
 */
class BundleImport(private val library: File, private val freeBytes: () -> Long) {
    /**
     * Returns the folder of the copied bundle, or of an equal one that was there.
     *
     * @param progress told the bytes that are copied, and of how many
     * @param cancelled asked between blocks
     * @throws BundleException it is not a bundle, is damaged, cannot be read or does not fit
     * @throws ImportCancelled [cancelled] said so
     */
    fun copy(
        source: Source,
        progress: (done: Long, total: Long) -> Unit = { _, _ -> },
        cancelled: () -> Boolean = { false },
    ): File {
        val data = reading(Manifest.NAME) { source.open(it).use { stream -> stream.upTo(Manifest.MAX_BYTES + 1) } }
        val manifest = Manifest.parse(data, library, Manifest.NAME)
        val folder = File(library, MessageDigest.getInstance("SHA-256").digest(data).hex())
        removeUnfinished()
        if (isWhole(folder)) return folder
        checkSizes(source, manifest)
        val part = File(library, folder.name + PART)
        try {
            Copying(source, part, manifest, progress, cancelled).run()
            writing(part) {
                File(part, Manifest.NAME).writeBytes(data)
                Files.move(part.toPath(), folder.toPath(), ATOMIC_MOVE)
            }
        } finally {
            part.deleteRecursively()
        }
        return folder
    }

    /** Deletes what an app left that was ended during an import. */
    private fun removeUnfinished() {
        library.listFiles { file -> file.name.endsWith(PART) }?.forEach { it.deleteRecursively() }
    }

    private fun isWhole(folder: File): Boolean = folder.exists() && try {
        Bundle.open(folder)
        true
    } catch (_: BundleException) {
        folder.deleteRecursively()
        false
    }

    private fun checkSizes(source: Source, manifest: Manifest) {
        for ((name, fact) in manifest.files) {
            val size = reading(name) { source.size(it) } ?: continue
            if (size != fact.bytes) throw anotherSize(name, "$size", fact)
        }
        val free = freeBytes()
        if (manifest.bytes > free) {
            throw BundleException(
                "the bundle needs ${manifest.bytes.megabytes()}, ${free.megabytes()} are free: make room for it",
            )
        }
    }
}

private const val PART = ".part"

/** One import's copies, into the folder [part]. */
private class Copying(
    private val source: Source,
    private val part: File,
    private val manifest: Manifest,
    private val progress: (Long, Long) -> Unit,
    private val cancelled: () -> Boolean,
) {
    private val block = ByteArray(1 shl 16)
    private var done = 0L

    fun run() {
        progress(0, manifest.bytes)
        for ((name, fact) in manifest.files) {
            val file = File(part, name)
            writing(file) { Files.createDirectories(file.parentFile.toPath()) }
            reading(name) { source.open(it) }.use { stream -> copy(name, fact, stream, file) }
        }
    }

    private fun copy(name: String, fact: FileFact, stream: InputStream, file: File) {
        if (file.exists()) throw BundleException("'${oneLine(name)}' is in the bundle twice here: rename one of them")
        val digest = MessageDigest.getInstance("SHA-256")
        writing(file) { FileOutputStream(file) }.use { out ->
            var bytes = 0L
            while (true) {
                if (cancelled()) throw ImportCancelled()
                val count = reading(name) { stream.read(block) }
                if (count < 0) break
                bytes += count
                if (bytes > fact.bytes) throw anotherSize(name, "more", fact)
                writing(file) { out.write(block, 0, count) }
                digest.update(block, 0, count)
                done += count
                progress(done, manifest.bytes)
            }
            if (bytes < fact.bytes) throw anotherSize(name, "$bytes", fact)
            // Before the folder gets its name, so that an outage leaves no bundle with empty files.
            writing(file) { out.fd.sync() }
        }
        if (digest.digest().hex() != fact.sha256) {
            throw BundleException("'$name' was altered: its sha256 is not the manifest's; export or copy it again")
        }
    }
}

private fun anotherSize(name: String, found: String, fact: FileFact) =
    BundleException("'$name' has $found bytes, the manifest says ${fact.bytes}: export or copy the bundle again")

private fun <T> reading(name: String, block: (String) -> T): T = try {
    block(name)
} catch (_: FileNotFoundException) {
    throw BundleException("'$name' is missing: choose the folder that `edgedec export` wrote, all of it")
} catch (error: IOException) {
    throw BundleException("'$name' cannot be read: ${reason(error)}", error)
} catch (error: SecurityException) {
    throw BundleException("'$name' cannot be read: ${reason(error)}", error)
}

private fun <T> writing(file: File, block: () -> T): T = try {
    block()
} catch (error: IOException) {
    throw BundleException("$file cannot be written: ${reason(error)}", error)
}

private fun reason(error: Exception): String = oneLine(error.message ?: error.javaClass.simpleName)

private fun Long.megabytes(): String = "${(this shr 20) + 1} MiB"
