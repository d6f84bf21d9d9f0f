package dev.edgedec.core

import java.io.ByteArrayOutputStream
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.nio.channels.Channels
import java.nio.file.FileSystemException
import java.nio.file.Files
import java.nio.file.InvalidPathException
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.NoSuchFileException
import java.nio.file.StandardOpenOption.READ
import java.nio.file.attribute.BasicFileAttributes
import java.security.MessageDigest

/**
 * One model of a bundle.
 *
 * @property name `target` or `draft`
 * @property model its graph, `model.onnx`
 * @property tokenizer the folder with `tokenizer.json`
 * @property tokenizerHash sha256 of the tokenizer's content, however the file is written
 * @property files all files of the model, the graph among them
 */
data class Role(
    val name: String,
    val model: File,
    val tokenizer: File,
    val tokenizerHash: String,
    val files: List<File> = listOf(model),
)

/**
 * An opened bundle: a folder that `edgedec export` wrote, whose files are as its manifest says.
 *
 * Data only: nothing in it is ever executed. The folder must be one that nobody else writes to while it is used, as an
 * app's own files are.
 *
 * @property draft the smaller model, or null
 */
class Bundle private constructor(val folder: File, val target: Role, val draft: Role?) {
    companion object {
        // Hashing these takes tens of milliseconds at most; larger ones would delay the first token.
        private const val SMALL_FILE_BYTES = 64L shl 20

        /**
         * Reads the manifest, and checks that all files are there with their sizes and that small ones are unaltered.
         *
         * @param verify hashes all files, which reads every byte
         * @throws BundleException not a bundle, of another schema, damaged, or with a path or a link that leads out
         */
        fun open(folder: File, verify: Boolean = false): Bundle {
            val manifest = Manifest.parse(readManifest(folder), folder, File(folder, Manifest.NAME).path)
            for ((name, fact) in manifest.files) BundleFile(folder, name).check(fact, hashed = false)
            val largest = if (verify) Long.MAX_VALUE else SMALL_FILE_BYTES
            for ((name, fact) in manifest.files) {
                if (fact.bytes <= largest) BundleFile(folder, name).check(fact, hashed = true)
            }
            return Bundle(folder, manifest.target, manifest.draft)
        }

        private fun readManifest(folder: File): ByteArray {
            if (!folder.isDirectory) {
                val kind = if (folder.exists()) "a file" else "not a folder"
                throw BundleException("$folder is $kind: give a bundle that `edgedec export` wrote")
            }
            val file = BundleFile(folder, Manifest.NAME)
            if (!file.exists()) {
                throw BundleException(
                    "$folder has no ${Manifest.NAME}: give a bundle that `edgedec export` wrote, all of it",
                )
            }
            return file.read { stream, _ -> stream.upTo(Manifest.MAX_BYTES + 1) }
        }
    }
}

/** A file of a bundle: a regular one inside the folder with no link on the way, or a [BundleException]. */
private class BundleFile(folder: File, name: String) {
    private val file = File(folder, name)
    private val steps = name.split('/').runningFold(folder) { above, part -> File(above, part) }.drop(1)

    fun exists(): Boolean = try {
        Files.exists(file.toPath(), NOFOLLOW_LINKS)
    } catch (_: InvalidPathException) {
        false
    }

    /** Compares the file with the manifest's [fact], its sha256 only if it is to be [hashed]. */
    fun check(fact: FileFact, hashed: Boolean) = read { stream, size ->
        if (size != fact.bytes) {
            throw BundleException(
                "$file has $size bytes, the manifest says ${fact.bytes}: export or copy the bundle again",
            )
        }
        if (hashed && sha256(stream) != fact.sha256) {
            throw BundleException(
                "$file was altered: its sha256 is not the manifest's; export or copy the bundle again",
            )
        }
    }

    /** Reads it by [block], which is given its bytes and their number. */
    fun <T> read(block: (InputStream, Long) -> T): T = try {
        val path = file.toPath()
        for (step in steps) if (Files.isSymbolicLink(step.toPath())) throw behindLink()
        val found = Files.readAttributes(path, BasicFileAttributes::class.java, NOFOLLOW_LINKS)
        // Before it is opened, since a pipe would wait for somebody who writes.
        if (found.isDirectory) throw unreadable("Is a directory")
        if (!found.isRegularFile) throw unreadable("it is not a regular file")
        Files.newByteChannel(path, setOf(READ, NOFOLLOW_LINKS)).use { channel ->
            block(Channels.newInputStream(channel), channel.size())
        }
    } catch (_: NoSuchFileException) {
        throw BundleException("$file is missing: export or copy the bundle again")
    } catch (error: IOException) {
        throw unreadable((error as? FileSystemException)?.reason ?: error.javaClass.simpleName)
    } catch (error: InvalidPathException) {
        throw unreadable(oneLine(error.reason))
    }

    private fun behindLink() = BundleException(
        "$file is behind a link, which may lead out of the bundle: put the file itself there",
    )

    private fun unreadable(reason: String) = BundleException("$file cannot be read: $reason")
}

/** At most [most] bytes. */
internal fun InputStream.upTo(most: Int): ByteArray {
    val found = ByteArrayOutputStream()
    val block = ByteArray(1 shl 13)
    while (found.size() < most) {
        val count = read(block, 0, minOf(block.size, most - found.size()))
        if (count < 0) break
        found.write(block, 0, count)
    }
    return found.toByteArray()
}

private fun sha256(stream: InputStream): String {
    val digest = MessageDigest.getInstance("SHA-256")
    val block = ByteArray(1 shl 16)
    generateSequence { stream.read(block).takeIf { it >= 0 } }.forEach { digest.update(block, 0, it) }
    return digest.digest().hex()
}

internal fun ByteArray.hex(): String = joinToString("") { "%02x".format(it) }
